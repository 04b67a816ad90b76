"""Cases for documented names without samples in torch's table of operators.

name: expression over `lib` (torch, then oneflow). `x(2, 3)` is a float tensor that requires a gradient, `i(2,
3, high=4)` an integer tensor, both equal on the two sides. If torch lacks the name, the case is a pair: an
expression for oneflow, and an equivalent in torch or NumPy.
"""

import textwrap


def table(prefix, text):
    out = {}
    for line in textwrap.dedent(text).strip().splitlines():
        name, _, code = line.partition(" ")
        code, _, reference = code.strip().partition(" ||| ")
        out[prefix + name] = (code.strip(), reference.strip()) if reference else code.strip()
    return out


TYPES = {
    f"oneflow.{t}Tensor": f"lib.{t}Tensor([1, 0, 3])"
    for t in "Bool Byte Char Double Float Half Int Long".split()
}

METHODS = {
    f"oneflow.Tensor.{m}": f"x(2, 3).{m}()"
    for m in (
        "arccos arcsin arctan arcsinh arctanh clip cpu detach dim element_size get_device"
        " is_contiguous is_floating_point ndimension negative nelement "
        "numel softsign storage_offset stride tolist type"
    ).split()
}
METHODS |= {
    f"oneflow.Tensor.{a}": f"x(2, 3).{a}"
    for a in "data device dtype is_cuda is_leaf ndim requires_grad shape is_pinned".split()
}
METHODS |= table(
    "oneflow.Tensor.",
    """
    arccosh (x(2, 3) + 1).arccosh()
    clip x(2, 3).clip(0.2, 0.5)
    clip_ (x(2, 3) * 1).clip_(0.2, 0.5)
    copy_ (x(2, 3) * 1).copy_(x(2, 3))
    inverse (x(3, 3) + lib.eye(3)).inverse()
    is_pinned x(2).is_pinned()
    new_tensor x(2).new_tensor([1.0, 2.0])
    numpy x(2, 3).detach().numpy()
    requires_grad_ x(2).detach().requires_grad_()
    register_hook hooked(x(2))
    retain_grad kept(x(2))
    size x(2, 3).size(1)
    T x(2, 3).T
    normal_ (x(2, 3) * 1).normal_(0.0, 2.0).shape
    swapaxes x(2, 3).swapaxes(0, 1)
    swapdims x(2, 3).swapdims(0, 1)
    type_as x(2).type_as(i(2))
    backward backward(x(2, 3))
    grad backward(x(2, 3))
    grad_fn (x(2) * 2).grad_fn is not None
    relu x(2, 3).relu()
    cast x(2, 3).cast(lib.float64) ||| x(2, 3).to(torch.float64)
    mish x(2, 3).mish() ||| torch.nn.functional.mish(x(2, 3))
    selu x(2, 3).selu() ||| torch.selu(x(2, 3))
    silu x(2, 3).silu() ||| torch.nn.functional.silu(x(2, 3))
    softplus x(2, 3).softplus() ||| torch.nn.functional.softplus(x(2, 3))
    is_global x(2).is_global ||| False
    is_lazy x(2).is_lazy ||| False
    is_offloaded x(2).is_offloaded() ||| False
    in_top_k i(2, high=3).in_top_k(x(2, 3), 2) ||| torch.stack([(torch.topk(p, 2).indices == t).any() for t, p in zip(i(2, high=3), x(2, 3))])
    to_global x(2).to_global(placement=lib.placement.all("cpu"), sbp=lib.sbp.broadcast).to_local() ||| x(2)
    local_to_global x(2).local_to_global(placement=lib.placement.all("cpu"), sbp=lib.sbp.broadcast).to_local() ||| x(2)
    to_local x(2).to_global(placement=lib.placement.all("cpu"), sbp=lib.sbp.split(0)).to_local() ||| x(2)
    placement str(x(2).to_global(placement=lib.placement.all("cpu"), sbp=lib.sbp.broadcast).placement.type) ||| "cpu"
    sbp str(x(2).to_global(placement=lib.placement.all("cpu"), sbp=lib.sbp.split(0)).sbp) ||| "(oneflow.sbp.split(dim=0),)"
""",  # noqa: E501
)

FUNCTIONS = (
    table(
        "oneflow.",
        """
    Tensor lib.Tensor([1.0, 2.0])
    adaptive_avg_pool1d lib.adaptive_avg_pool1d(x(1, 2, 6), 3)
    adaptive_avg_pool2d lib.adaptive_avg_pool2d(x(1, 2, 6, 6), 3) ||| torch.nn.functional.adaptive_avg_pool2d(x(1, 2, 6, 6), 3)
    adaptive_avg_pool3d lib.adaptive_avg_pool3d(x(1, 2, 4, 4, 4), 2) ||| torch.nn.functional.adaptive_avg_pool3d(x(1, 2, 4, 4, 4), 2)
    arccos lib.arccos(x(3))
    arccosh lib.arccosh(x(3) + 1)
    arcsin lib.arcsin(x(3))
    arcsinh lib.arcsinh(x(3))
    arctan lib.arctan(x(3))
    arctanh lib.arctanh(x(3))
    as_tensor lib.as_tensor([1.0, 2.0])
    batch_gather lib.batch_gather(x(2, 4), i(2, 3, high=4)) ||| torch.gather(x(2, 4), 1, i(2, 3, high=4))
    broadcast_like lib.broadcast_like(x(3), x(2, 3)) ||| x(3).expand(2, 3)
    cast lib.cast(x(3), lib.float64) ||| x(3).to(torch.float64)
    ceil_ lib.ceil_(x(3) * 1)
    clip lib.clip(x(3), 0.2, 0.5)
    concat lib.concat([x(2, 3), x(1, 3)])
    device str(lib.device("cpu"))
    dtype isinstance(lib.float32, lib.dtype)
    enable_grad graded(lib.enable_grad)
    finfo (lib.finfo(lib.float32).max, lib.finfo(lib.float32).eps)
    floor_ lib.floor_(x(3) * 3)
    frac_ lib.frac_(x(3) * 3)
    from_numpy lib.from_numpy(np.arange(4.0))
    gather_nd lib.gather_nd(x(3, 4), i(2, 1, high=3)) ||| x(3, 4)[i(2, 1, high=3)[:, 0]]
    gelu lib.gelu(x(3)) ||| torch.nn.functional.gelu(x(3))
    get_default_dtype lib.get_default_dtype()
    get_rng_state lib.get_rng_state()
    greater lib.greater(x(3), 0.5)
    greater_equal lib.greater_equal(x(3), 0.5)
    hann_window lib.hann_window(6)
    iinfo (lib.iinfo(lib.int32).max, lib.iinfo(lib.int8).min)
    in_top_k lib.in_top_k(i(2, high=3), x(2, 3), 2) ||| torch.stack([(torch.topk(p, 2).indices == t).any() for t, p in zip(i(2, high=3), x(2, 3))])
    inference_mode graded(lib.inference_mode)
    initial_seed (lib.manual_seed(5), lib.initial_seed())[1]
    is_floating_point lib.is_floating_point(x(2))
    is_grad_enabled lib.is_grad_enabled()
    is_nonzero lib.is_nonzero(x(1))
    is_tensor lib.is_tensor(x(1))
    lerp_ lib.lerp_(x(3) * 1, x(3), 0.3) ||| torch.lerp(x(3), x(3), 0.3)
    manual_seed (lib.manual_seed(3), lib.rand(2))[1]
    mish lib.mish(x(3)) ||| torch.nn.functional.mish(x(3))
    negative lib.negative(x(3))
    no_grad graded(lib.no_grad)
    normal lib.normal(0.0, 1.0, size=(2, 3)).shape
    einsum lib.einsum("ij,jk->ik", x(2, 3), x(3, 2))
    nn.functional.ctc_loss lib.nn.functional.ctc_loss(lib.log_softmax(x(5, 1, 4), 2), lib.tensor([[1, 2]]), lib.tensor([5]), lib.tensor([2]))
    nn.functional.embedding lib.nn.functional.embedding(i(2, 2, high=3), x(3, 4))
    not_equal lib.not_equal(x(3), 0.5)
    numel lib.numel(x(2, 3))
    quick_gelu lib.quick_gelu(x(3)) ||| x(3) * torch.sigmoid(1.702 * x(3))
    rand (lib.manual_seed(3), lib.rand(2, 3))[1]
    randperm (lib.manual_seed(3), lib.randperm(5))[1]
    round_ lib.round_(x(3) * 3)
    row_stack lib.row_stack([x(2, 3), x(1, 3)]) ||| torch.vstack([x(2, 3), x(1, 3)])
    scatter_nd lib.scatter_nd(lib.tensor([[1], [3]]), x(2), [5]) ||| torch.zeros(5).index_add(0, torch.tensor([1, 3]), x(2))
    seed isinstance(lib.seed(), int)
    selu lib.selu(x(3))
    set_default_dtype (lib.set_default_dtype(lib.float64), lib.ones(2), lib.set_default_dtype(lib.float32))[1]
    set_default_tensor_type (lib.set_default_tensor_type(lib.DoubleTensor), lib.ones(2), lib.set_default_tensor_type(lib.FloatTensor))[1]
    set_grad_enabled graded(lambda: lib.set_grad_enabled(False))
    set_printoptions (lib.set_printoptions(precision=2), str(lib.tensor([1.23456])), lib.set_printoptions(profile="default"))[1]
    set_rng_state (lib.set_rng_state(lib.get_rng_state()), 1)[1]
    silu lib.silu(x(3)) ||| torch.nn.functional.silu(x(3))
    sin_ lib.sin_(x(3) * 1)
    slice lib.slice(x(3, 4), [[0, 2, 1], [1, 3, 1]]) ||| x(3, 4)[0:2, 1:3]
    slice_update sliced(lib, x(3, 4) * 1) ||| torch.cat([torch.ones(1, 4), x(3, 4)[1:]])
    softplus lib.softplus(x(3)) ||| torch.nn.functional.softplus(x(3))
    softsign lib.softsign(x(3)) ||| torch.nn.functional.softsign(x(3))
    square_relu lib.square_relu(x(3)) ||| torch.relu(x(3)) ** 2
    swapaxes lib.swapaxes(x(2, 3), 0, 1)
    swapdims lib.swapdims(x(2, 3), 0, 1)
    tensor lib.tensor([[1, 2], [3, 4]])
    tensor_scatter_nd_update lib.tensor_scatter_nd_update(x(5), lib.tensor([[1], [3]]), x(2)) ||| x(5).index_copy(0, torch.tensor([1, 3]), x(2))
    placement str(lib.placement("cpu", ranks=[0]).type) ||| "cpu"
    placement.all lib.placement.all("cpu").ranks.tolist() ||| [0]
    sbp.sbp isinstance(lib.sbp.broadcast, lib.sbp.sbp) ||| True
    env.get_rank lib.env.get_rank() ||| 0
    env.get_local_rank lib.env.get_local_rank() ||| 0
    env.get_world_size lib.env.get_world_size() ||| 1
    env.get_node_size lib.env.get_node_size() ||| 1
    autograd.backward manual(lib)
    autograd.grad lib.autograd.grad((x(3) ** 2).sum(), given())
    autograd.no_grad graded(lib.autograd.no_grad)
    autograd.enable_grad graded(lib.autograd.enable_grad)
    autograd.inference_mode graded(lib.autograd.inference_mode)
    autograd.set_grad_enabled graded(lambda: lib.autograd.set_grad_enabled(False))
    autograd.functional.jacobian lib.autograd.functional.jacobian(lambda a: a ** 2, x(3))
    autograd.functional.hessian lib.autograd.functional.hessian(lambda a: (a ** 3).sum(), x(3))
    autograd.functional.vjp lib.autograd.functional.vjp(lambda a: a ** 2, x(3), x(3))
    autograd.functional.jvp lib.autograd.functional.jvp(lambda a: a ** 2, x(3), x(3))
    autograd.functional.vhp lib.autograd.functional.vhp(lambda a: (a ** 3).sum(), x(3), x(3))
    autograd.functional.hvp lib.autograd.functional.hvp(lambda a: (a ** 3).sum(), x(3), x(3))
    utils.tensor.from_torch lib.utils.tensor.from_torch(x(3)) ||| x(3)
    utils.tensor.to_torch lib.utils.tensor.to_torch(x(3)) ||| x(3)
    distributions.Categorical lib.distributions.Categorical(logits=x(4)).log_prob(i(1, high=4))
    nn.functional.log_softmax lib.nn.functional.log_softmax(x(2, 3), 1)
    nn.functional.softmax lib.nn.functional.softmax(x(2, 3), 1)
    nn.functional.sigmoid lib.nn.functional.sigmoid(x(3))
    nn.functional.tanh lib.nn.functional.tanh(x(3))
    nn.functional.fold lib.nn.functional.fold(x(1, 4, 9), (4, 4), (2, 2))
    nn.functional.affine_grid lib.nn.functional.affine_grid(x(1, 2, 3), (1, 1, 3, 3), False)
    nn.functional.dropout1d lib.nn.functional.dropout1d(x(2, 3, 4), 0.5, False)
    nn.functional.gumbel_softmax lib.nn.functional.gumbel_softmax(x(2, 3)).shape
    nn.functional.quick_gelu lib.nn.functional.quick_gelu(x(3)) ||| x(3) * torch.sigmoid(1.702 * x(3))
    nn.functional.square_relu lib.nn.functional.square_relu(x(3)) ||| torch.relu(x(3)) ** 2
    nn.functional.upsample lib.nn.functional.upsample(x(1, 1, 2, 2), scale_factor=2)
    nn.functional.sparse_softmax_cross_entropy lib.nn.functional.sparse_softmax_cross_entropy(i(2, high=3), x(2, 3)) ||| swapped_cross_entropy()
""",  # noqa: E501
    )
    | {
        f"oneflow.special.{f}": f"lib.special.{f}(x(3))"
        for f in "digamma erf erfc erfinv exp2 expm1 log1p round".split()
    }
    | {
        f"oneflow.special.{f}": f"lib.special.{f}(x(2, 3), 1)"
        for f in "softmax log_softmax logsumexp".split()
    }
)

MODULES = (
    table(
        "oneflow.nn.",
        """
    ConstantPad1d lib.nn.ConstantPad1d(1, 2.0)(x(1, 2, 3))
    Dropout lib.nn.Dropout(0.5).eval()(x(2, 3))
    Dropout1d lib.nn.Dropout1d(0.5).eval()(x(2, 3, 4))
    Dropout2d lib.nn.Dropout2d(0.5).eval()(x(2, 3, 4, 4))
    Dropout3d lib.nn.Dropout3d(0.5).eval()(x(2, 3, 2, 2, 2))
    Fold lib.nn.Fold((4, 4), (2, 2))(x(1, 4, 9))
    Unfold lib.nn.Unfold(2)(x(1, 2, 3, 3))
    Upsample lib.nn.Upsample(scale_factor=2)(x(1, 1, 2, 2))
    UpsamplingBilinear2d lib.nn.UpsamplingBilinear2d(scale_factor=2)(x(1, 1, 2, 2))
    UpsamplingNearest2d lib.nn.UpsamplingNearest2d(scale_factor=2)(x(1, 1, 2, 2))
    SyncBatchNorm lib.nn.SyncBatchNorm(2).eval()(x(2, 2))
    Parameter lib.nn.Parameter(x(2).detach())
    ParameterList list(lib.nn.ParameterList([lib.nn.Parameter(x(2).detach())]).state_dict())
    ParameterDict list(lib.nn.ParameterDict({"a": lib.nn.Parameter(x(2).detach())}).state_dict())
    ModuleList list(lib.nn.ModuleList([lib.nn.Linear(2, 1)]).state_dict())
    ModuleDict list(lib.nn.ModuleDict({"a": lib.nn.Linear(2, 1)}).state_dict())
    Sequential lib.nn.Sequential(lib.nn.ReLU(), lib.nn.Tanh())(x(2))
    PixelShuffle lib.nn.PixelShuffle(2)(x(1, 4, 2, 2))
    Flatten lib.nn.Flatten()(x(2, 3, 4))
    Identity lib.nn.Identity()(x(2))
    PairwiseDistance lib.nn.PairwiseDistance()(x(2, 3), x(2, 3))
    CosineSimilarity lib.nn.CosineSimilarity()(x(2, 3), x(2, 3))
    MarginRankingLoss lib.nn.MarginRankingLoss()(x(3), x(3), lib.tensor([1.0, -1.0, 1.0]))
    TripletMarginLoss lib.nn.TripletMarginLoss()(x(2, 3), x(2, 3) * 2, x(2, 3) + 1)
    CTCLoss lib.nn.CTCLoss()(lib.log_softmax(x(5, 1, 4), 2), lib.tensor([[1, 2]]), lib.tensor([5]), lib.tensor([2]))
    Hardsigmoid lib.nn.Hardsigmoid()(x(3) * 8 - 4)
    MaxUnpool1d lib.nn.MaxUnpool1d(2)(*lib.nn.MaxPool1d(2, return_indices=True)(x(1, 2, 6)))
    MaxUnpool2d lib.nn.MaxUnpool2d(2)(*lib.nn.MaxPool2d(2, return_indices=True)(x(1, 2, 4, 4)))
    MaxUnpool3d lib.nn.MaxUnpool3d(2)(*lib.nn.MaxPool3d(2, return_indices=True)(x(1, 2, 4, 4, 4)))
    QuickGELU lib.nn.QuickGELU()(x(3)) ||| x(3) * torch.sigmoid(1.702 * x(3))
    SquareReLU lib.nn.SquareReLU()(x(3)) ||| torch.relu(x(3)) ** 2
    RMSLayerNorm lib.nn.RMSLayerNorm(4)(x(2, 4)) ||| x(2, 4) * torch.rsqrt(x(2, 4).pow(2).mean(-1, keepdim=True) + 1e-6)
    utils.clip_grad_norm_ clipped(lib.nn.utils.clip_grad_norm_, 0.1)
    utils.clip_grad_value_ clipped(lib.nn.utils.clip_grad_value_, 0.1)
    utils.weight_norm sorted(lib.nn.utils.weight_norm(lib.nn.Linear(2, 3)).state_dict())
    utils.remove_weight_norm sorted(lib.nn.utils.remove_weight_norm(lib.nn.utils.weight_norm(lib.nn.Linear(2, 3))).state_dict())
    utils.rnn.pad_sequence lib.nn.utils.rnn.pad_sequence([x(2), x(3)])
    utils.rnn.pack_sequence lib.nn.utils.rnn.pack_sequence([x(3), x(2)]).data
    utils.rnn.pack_padded_sequence lib.nn.utils.rnn.pack_padded_sequence(x(3, 2, 1), [3, 2]).data
    utils.rnn.pad_packed_sequence lib.nn.utils.rnn.pad_packed_sequence(lib.nn.utils.rnn.pack_padded_sequence(x(3, 2, 1), [3, 2]))
    utils.rnn.PackedSequence type(lib.nn.utils.rnn.pack_sequence([x(3), x(2)])).__name__
    init.calculate_gain lib.nn.init.calculate_gain("leaky_relu", 0.2)
    init.constant_ lib.nn.init.constant_(lib.empty(2, 3), 2.5)
    init.ones_ lib.nn.init.ones_(lib.empty(2, 3))
    init.zeros_ lib.nn.init.zeros_(lib.empty(2, 3))
    init.normal_ lib.nn.init.normal_(lib.empty(2, 3)).shape
    init.uniform_ lib.nn.init.uniform_(lib.empty(2, 3)).shape
    init.trunc_normal_ lib.nn.init.trunc_normal_(lib.empty(2, 3)).shape
    init.orthogonal_ lib.nn.init.orthogonal_(lib.empty(3, 3)).shape
    init.xavier_normal_ lib.nn.init.xavier_normal_(lib.empty(2, 3)).shape
    init.xavier_uniform_ (lib.manual_seed(1), lib.nn.init.xavier_uniform_(lib.empty(2, 3)))[1]
    init.kaiming_normal_ lib.nn.init.kaiming_normal_(lib.empty(2, 3)).shape
    init.kaiming_uniform_ (lib.manual_seed(1), lib.nn.init.kaiming_uniform_(lib.empty(2, 3)))[1]
    Module type(lib.nn.Module()).__mro__[0].__name__
""",  # noqa: E501
    )
    | {
        f"oneflow.nn.Module.{m}": f"[type(e).__name__ for e in lib.nn.Linear(2, 1).{m}()]"
        for m in (
            "buffers children modules named_buffers named_children named_modules named_parameters parameters"
        ).split()
    }
    | {
        f"oneflow.nn.Module.{m}": f"[str(p.dtype) for p in lib.nn.Linear(2, 1).{m}().parameters()]"
        for m in "cpu double eval float requires_grad_ train".split()
    }
    | table(
        "oneflow.nn.Module.",
        """
    add_module added(lib.nn.Linear(2, 1), lib.nn.ReLU())
    apply len([lib.nn.Linear(2, 1).apply(lambda m: m)])
    extra_repr lib.nn.Linear(2, 1).extra_repr()
    forward lib.nn.ReLU().forward(x(3))
    load_state_dict str(lib.nn.Linear(2, 1).load_state_dict(lib.nn.Linear(2, 1).state_dict()))
    register_buffer registered(lib.nn.Linear(2, 1), "register_buffer", lib.ones(2))
    register_parameter registered(lib.nn.Linear(2, 1), "register_parameter", lib.nn.Parameter(lib.ones(2)))
    register_forward_hook hooks(lib, "register_forward_hook")
    register_forward_pre_hook hooks(lib, "register_forward_pre_hook")
    register_full_backward_hook hooks(lib, "register_full_backward_hook")
    state_dict list(lib.nn.Linear(2, 1).state_dict())
    to [str(p.dtype) for p in lib.nn.Linear(2, 1).to(lib.float64).parameters()]
    zero_grad lib.nn.Linear(2, 1).zero_grad()
""",
    )
)

TRAINING = {
    f"oneflow.optim.{o}": f"trained(lib, lambda p: lib.optim.{o}(p, lr=0.1))"
    for o in "Adagrad Adam AdamW RMSprop SGD".split()
} | table(
    "oneflow.optim.",
    """
    Optimizer.step trained(lib, lambda p: lib.optim.SGD(p, lr=0.1, momentum=0.9))
    Optimizer.zero_grad trained(lib, lambda p: lib.optim.SGD(p, lr=0.2))
    Optimizer.state_dict sorted(lib.optim.SGD([lib.nn.Parameter(lib.ones(2))], lr=0.1).state_dict())
    Optimizer.load_state_dict restored(lib)
    Optimizer.add_param_group grouped(lib)
    lr_scheduler.ConstantLR rates(lib, lambda o: lib.optim.lr_scheduler.ConstantLR(o, 0.5, 3))
    lr_scheduler.CosineAnnealingLR rates(lib, lambda o: lib.optim.lr_scheduler.CosineAnnealingLR(o, 5))
    lr_scheduler.CosineAnnealingWarmRestarts rates(lib, lambda o: lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3))
    lr_scheduler.ExponentialLR rates(lib, lambda o: lib.optim.lr_scheduler.ExponentialLR(o, 0.9))
    lr_scheduler.LambdaLR rates(lib, lambda o: lib.optim.lr_scheduler.LambdaLR(o, lambda s: 1 / (s + 1)))
    lr_scheduler.LinearLR rates(lib, lambda o: lib.optim.lr_scheduler.LinearLR(o, 0.5, 1.0, 4))
    lr_scheduler.MultiStepLR rates(lib, lambda o: lib.optim.lr_scheduler.MultiStepLR(o, [2, 4]))
    lr_scheduler.StepLR rates(lib, lambda o: lib.optim.lr_scheduler.StepLR(o, 2))
    lr_scheduler.PolynomialLR rates(lib, lambda o: lib.optim.lr_scheduler.PolynomialLR(o, 5))
    lr_scheduler.SequentialLR rates(lib, lambda o: lib.optim.lr_scheduler.SequentialLR(o, [lib.optim.lr_scheduler.ConstantLR(o, 0.5, 3), lib.optim.lr_scheduler.ExponentialLR(o, 0.9)], [2]))
    lr_scheduler.ChainedScheduler rates(lib, lambda o: lib.optim.lr_scheduler.ChainedScheduler([lib.optim.lr_scheduler.ConstantLR(o, 0.5, 3), lib.optim.lr_scheduler.ExponentialLR(o, 0.9)]))
""",  # noqa: E501
)

DATA = table(
    "oneflow.utils.data.",
    """
    BatchSampler list(lib.utils.data.BatchSampler(lib.utils.data.SequentialSampler(range(5)), 2, False))
    ConcatDataset len(lib.utils.data.ConcatDataset([lib.utils.data.TensorDataset(x(2)), lib.utils.data.TensorDataset(x(3))]))
    DataLoader [b[0].shape for b in lib.utils.data.DataLoader(lib.utils.data.TensorDataset(x(5, 2).detach()), batch_size=2)]
    Dataset issubclass(lib.utils.data.TensorDataset, lib.utils.data.Dataset)
    IterableDataset isinstance(lib.utils.data.IterableDataset, type)
    RandomSampler sorted(lib.utils.data.RandomSampler(range(5)))
    Sampler issubclass(lib.utils.data.SequentialSampler, lib.utils.data.Sampler)
    SequentialSampler list(lib.utils.data.SequentialSampler(range(5)))
    Subset len(lib.utils.data.Subset(range(5), [1, 2]))
    SubsetRandomSampler sorted(lib.utils.data.SubsetRandomSampler([1, 3]))
    TensorDataset len(lib.utils.data.TensorDataset(x(2)))
    distributed.DistributedSampler sorted(lib.utils.data.distributed.DistributedSampler(range(5), num_replicas=2, rank=0, shuffle=False))
    random_split [len(s) for s in lib.utils.data.random_split(range(5), [2, 3])]
""",  # noqa: E501
)

WRITTEN = TYPES | METHODS | FUNCTIONS | MODULES | TRAINING | DATA

# Names that no case of this suite can run, by pattern, and where they are tested instead.
LEFT_OUT = [
    (r"oneflow\.comm\.", "needs several processes"),
    (r"oneflow\.cuda\.|oneflow\.Tensor\.(cuda|pin_memory|offload|load)$", "needs a CUDA device"),
    (r"oneflow\.one_embedding\.", "a table of embeddings on disk and in memory; its own tests"),
    (
        r"oneflow\.nn\.[Gg]raph",
        "the graph engine itself; tests/graph, and the graph column of every other row",
    ),
    (r"oneflow\.hub\.", "needs the network or a repository; tests/data"),
    (r"oneflow\.(load|save)$", "files; tests/files"),
    (
        r"OFRecord|COCOReader|CoinFlip|CropMirrorNormalize|nn\.image\.|decode_onerec",
        "reads data files; tests/data",
    ),
    (r"oneflow\.utils\.global_view|global_to_global|to_consistent", "global tensors; tests/core"),
    (
        r"oneflow\.env\.(all_device_placement|init_rdma|rdma_is_initialized)",
        "the machine's network and devices",
    ),
    (
        (
            r"Quantization|MinMaxObserver|Qat|FusedBatchNorm|CombinedMarginLoss|deform_conv2d|"
            r"ctc_greedy_decoder|roc_auc_score|\bnms$|RMSNorm"
        ),
        "OneFlow's own operators; tests/ops and tests/nn against recorded numbers",
    ),
    (r"autograd\.Function", "subclassed by the user; tests/autograd"),
    (
        r"optim\.(LAMB|LBFGS|Optimizer$)|lr_scheduler\.(CosineDecayLR|ReduceLROnPlateau)",
        "no counterpart with the same meaning; tests/optim against recorded numbers",
    ),
    (r"DistributedDataParallel", "needs several processes; tests/nn"),
    (r"oneflow\.set_num_threads", "the number of threads of this process"),
    (r"register_backward_hook|register_state_dict_pre_hook", "hooks with arguments of their own; tests/nn"),
    (r"distributions\.Distribution$", "an abstract class"),
    (r"Tensor\.nms|nn\.Module\.cuda", "needs a CUDA device"),
]
