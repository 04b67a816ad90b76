"""Modules and functions with features that torch's versions lack."""

import copy
import pickle

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.nn import functional as F


def last(x):
    return x.movedim(1, -1).contiguous()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_channels_last_conv_is_the_permuted_conv(n):
    x, w, b = torch.randn(2, 4, *[6] * n), torch.randn(6, 2, *[3] * n), torch.randn(6)
    want = getattr(F, f"conv{n}d")(x, w, b, 2, 1, 1, 2)
    got = getattr(F, f"conv{n}d")(last(x), last(w), b, 2, 1, 1, 2, "channels_last")
    torch.testing.assert_close(got, last(want))
    x, w = torch.randn(2, 4, *[5] * n), torch.randn(4, 3, *[3] * n)
    want = getattr(F, f"conv_transpose{n}d")(x, w, None, 2, 1, 1)
    torch.testing.assert_close(
        getattr(F, f"conv_transpose{n}d")(last(x), last(w), None, 2, 1, 1, data_format="channels_last"),
        last(want),
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    "stride, padding, extra, dilation", [(1, 0, 1, 1), (1, 1, 1, 1), (2, 1, 3, 1), (2, 2, 2, 1), (1, 0, 2, 2)]
)
def test_output_padding_may_reach_the_stride(n, stride, padding, extra, dilation):
    x, w, b = torch.randn(2, 4, *[3] * n), torch.randn(4, 3, *[3] * n), torch.randn(3)
    got = getattr(F, f"conv_transpose{n}d")(x, w, b, stride, padding, extra, 1, dilation)
    # one element more in front of every stride: zeros between, the output padding and what a longer kernel
    # reaches
    spread = torch.zeros(2, 4, *[2 * stride + 1] * n)
    spread[(..., *[slice(None, None, stride)] * n)] = x
    reach = 2 * dilation
    spread = torch.nn.functional.pad(spread, (reach - padding, reach - padding + extra) * n)
    want = getattr(torch.nn.functional, f"conv{n}d")(
        spread, w.transpose(0, 1).flip(*range(2, 2 + n)), b, dilation=dilation
    )
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(
        getattr(flow._C, f"deconv{n}d")(
            last(x), last(w), b, (stride,), (padding,), [extra], 1, [dilation], "channels_last"
        ),
        last(want),
    )


def test_output_padding_of_the_stride_as_recorded():
    """Values recorded from OneFlow 0.9.0."""
    x, w = torch.arange(1.0, 5.0).reshape(1, 1, 4), torch.tensor([[[1.0, 10.0, 100.0]]])
    assert F.conv_transpose1d(x, w, None, 1, 1, 1).flatten().tolist() == [12, 123, 234, 340, 400]
    assert F.conv_transpose1d(x, w, torch.tensor([0.5]), 2, 0, 3).flatten().tolist() == [
        1.5,
        10.5,
        102.5,
        20.5,
        203.5,
        30.5,
        304.5,
        40.5,
        400.5,
        0.5,
        0.5,
        0.5,
    ]


@pytest.mark.parametrize(
    "name, args", [("max_pool{}d", (2,)), ("avg_pool{}d", (2, 1)), ("adaptive_avg_pool{}d", (3,))]
)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_channels_last_pool_is_the_permuted_pool(name, args, n):
    x, f = torch.randn(2, 4, *[6] * n), getattr(F, name.format(n))
    torch.testing.assert_close(f(last(x), *args, data_format="channels_last"), last(f(x, *args)))
    torch.testing.assert_close(f(last(x)[0], *args, data_format="channels_last"), last(f(x, *args))[0])


def test_the_nhwc_variable_is_not_read_and_channels_last_memory_is_there(monkeypatch):
    monkeypatch.setenv("ONEFLOW_ENABLE_NHWC", "1")
    x = torch.randn(2, 3, 5, 5)
    m = flow.nn.Sequential(flow.nn.Conv2d(3, 4, 3), flow.nn.BatchNorm2d(4), flow.nn.MaxPool2d(2)).to(
        memory_format=flow.channels_last
    )
    assert m[0].weight.shape == (4, 3, 3, 3) and m[0].weight.is_contiguous(memory_format=flow.channels_last)
    y = m(x.to(memory_format=flow.channels_last))
    assert y.shape == (2, 4, 1, 1)
    torch.testing.assert_close(
        F.conv2d(
            x.permute(0, 2, 3, 1), m[0].weight.permute(0, 2, 3, 1), m[0].bias, channel_pos="channels_last"
        ).permute(0, 3, 1, 2),
        m[0](x),
    )


def test_channels_last_modules_and_indices():
    x = torch.randn(2, 4, 6, 6)
    torch.testing.assert_close(
        flow.nn.AdaptiveAvgPool2d(2, "channels_last")(last(x)), last(flow.nn.AdaptiveAvgPool2d(2)(x))
    )
    values, indices = flow.nn.AdaptiveMaxPool2d(2, True, data_format="channels_last")(last(x))
    want = torch.nn.AdaptiveMaxPool2d(2, True)(x)
    assert torch.equal(values, last(want[0])) and torch.equal(indices, last(want[1]))
    torch.testing.assert_close(F.unfold(last(x), 2, data_format="channels_last"), F.unfold(x, 2))
    torch.testing.assert_close(
        F.fold(F.unfold(x, 2), (6, 6), 2, data_format="channels_last"),
        last(F.fold(F.unfold(x, 2), (6, 6), 2)),
    )


@pytest.mark.parametrize(
    "call",
    [
        "F.conv2d(torch.ones(1, 2, 3, 3), torch.ones(1, 2, 1, 1), channel_pos='NHWC')",
        "flow.nn.AdaptiveAvgPool2d(2, 'last')",
    ],
)
def test_unknown_layout_is_named(call):
    with pytest.raises(ValueError, match="channels_first"):
        eval(call)


def test_avg_pool1d_divisor():
    x = torch.arange(6.0).reshape(1, 1, 6)
    assert F.avg_pool1d(x, 2, divisor_override=4).flatten().tolist() == [0.25, 1.25, 2.25]
    assert F.avg_pool1d(x, (2,), (1,), (1,), divisor_override=1).flatten().tolist() == [0, 1, 3, 5, 7, 9, 5]


def test_dropout_takes_numbers_from_its_generator():
    x = torch.ones(1000)
    state = torch.random.get_rng_state()
    one = flow.nn.Dropout(0.25, generator=torch.Generator().manual_seed(1))(x)
    two = F.dropout(x, 0.25, True, False, torch.Generator().manual_seed(1))
    assert torch.equal(one, two) and torch.equal(state, torch.random.get_rng_state())
    assert set(one.tolist()) == {0.0, torch.tensor(4 / 3).item()} and 150 < (one == 0).sum() < 350
    other = F.dropout(x, 0.25, generator=torch.Generator().manual_seed(2))
    assert not torch.equal(one, other)
    assert torch.equal(F.dropout(x, 1.0, generator=torch.Generator()), torch.zeros(1000))
    assert F.dropout(x, 0.5, False, generator=torch.Generator()) is x
    y = x.clone()
    assert F.dropout(y, 0.5, inplace=True, generator=torch.Generator()) is y and (y == 0).any()
    with pytest.raises(ValueError, match="probability"):
        F.dropout(x, 1.5, generator=torch.Generator())


def test_dropout_without_generator_is_torchs():
    x = torch.randn(50)
    torch.manual_seed(4)
    want = torch.nn.functional.dropout(x, 0.5)
    torch.manual_seed(4)
    assert torch.equal(flow.nn.Dropout(0.5)(x), want)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_channel_dropout_drops_whole_channels(n):
    x = torch.ones(8, 16, *[3] * n)
    module = getattr(flow.nn, f"Dropout{n}d")(0.5, False, torch.Generator().manual_seed(0))
    channels = module(x).reshape(8, 16, -1)
    assert torch.equal(channels.amax(-1), channels.amin(-1)) and 32 < (channels[..., 0] == 0).sum() < 96
    assert module.eval()(x) is x
    assert torch.equal(getattr(flow.nn, f"Dropout{n}d")(0.0)(x), x)


def test_dropout_adds_its_addend():
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    assert torch.equal(flow.nn.Dropout(0.5).eval()(x, addend=y), x + y)
    assert torch.equal(F.dropout(x, 0.0, addend=y), x + y)


@pytest.mark.parametrize("name", ["Hardshrink", "Softshrink", "Softsign"])
def test_an_activation_in_place_writes_its_input(name):
    plain, inplace = getattr(flow.nn, name)(), getattr(flow.nn, name)(inplace=True)
    x = torch.randn(20)
    want = plain(x)
    y = x.clone()
    assert inplace(y) is y and torch.equal(y, want)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    plain(a * 1).square().sum().backward()
    inplace(b * 1).square().sum().backward()
    assert torch.equal(a.grad, b.grad)
    with pytest.raises(RuntimeError, match="leaf"):
        inplace(a)


def test_pixel_shuffle_with_two_factors():
    x = torch.arange(12.0).reshape(1, 6, 1, 2)
    got = flow.nn.PixelShuffle(h_upscale_factor=2, w_upscale_factor=3)(x)
    assert got.tolist() == [[[[0, 2, 4, 1, 3, 5], [6, 8, 10, 7, 9, 11]]]]
    same = torch.randn(2, 8, 3, 3)
    assert torch.equal(flow.nn.PixelShuffle(None, 2, 2)(same), torch.nn.PixelShuffle(2)(same))
    for wrong in ((), (2, 2, 2), (None, 2), (None, 2, -3)):
        with pytest.raises(ValueError, match="factor"):
            flow.nn.PixelShuffle(*wrong)
    with pytest.raises(ValueError, match="multiple of 6"):
        flow.nn.PixelShuffle(None, 2, 3)(same)


def test_embedding_positional_device_and_dtype():
    assert (
        flow.nn.Embedding(3, 2, None, None, 2.0, False, False, None, "cpu", torch.float64).weight.dtype
        is torch.float64
    )
    frozen = flow.nn.Embedding(
        3, 2, None, None, 2.0, False, False, torch.ones(3, 2), True, "cpu", torch.float32
    )
    assert not frozen.weight.requires_grad
    assert not flow.nn.Embedding.from_pretrained(torch.ones(3, 2)).weight.requires_grad
    assert flow.nn.Embedding(3, 2)(torch.tensor([1], dtype=torch.int32)).shape == (1, 2)


def test_rms_norm_default_eps():
    x = torch.full((1, 4), 1e-3)
    assert flow.nn.RMSNorm(4).eps == 1e-5
    torch.testing.assert_close(flow.nn.RMSNorm(4)(x), x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


def test_group_norm_num_channels():
    with pytest.raises(ValueError, match="num_channels is 6.*4 channels"):
        F.group_norm(torch.ones(1, 4, 2), 2, num_channels=6)


def test_small_functions_have_the_documented_values():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(F.quick_gelu(x), x * torch.sigmoid(1.702 * x))
    torch.testing.assert_close(F.square_relu(x), torch.relu(x) ** 2)
    torch.testing.assert_close(F.l2_normalize(x, 1).norm(dim=1), torch.ones(3, dtype=torch.float64))
    assert F.l2_normalize(input=x, dim=1, epsilon=1e-10).equal(F.l2_normalize(x, 1, 1e-10))
    assert F.l2_normalize(torch.zeros(2, 2)).tolist() == [[0, 0], [0, 0]]
    assert F.interpolate_like(torch.ones(1, 1, 2, 2), like=torch.ones(3, 3, 5, 7)).shape == (1, 1, 5, 7)
    assert F.depend(x, x) is x and F.depend(x, [x, x]) is x
    with pytest.raises(TypeError, match="depend"):
        F.depend(x, 1)
    assert isinstance(F.upsample(scale_factor=2), flow.nn.Upsample)
    for f in (F.quick_gelu, F.square_relu, F.l2_normalize):
        assert torch.autograd.gradcheck(f, (x,))


def test_no_warning_without_dim():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.softmax(torch.ones(2, 3))
        F.log_softmax(torch.ones(2, 3))
        F.grid_sample(torch.ones(1, 1, 2, 2), torch.zeros(1, 2, 2, 2))


def test_load_state_dict_takes_numpy():
    linear = flow.nn.Linear(2, 1)
    keys = linear.load_state_dict(
        {"weight": np.array([[1, 2]], dtype=np.float64), "bias": torch.tensor([3.0])}
    )
    assert (
        not keys.missing_keys and linear.weight.tolist() == [[1, 2]] and linear.weight.dtype is torch.float32
    )
    scalar = flow.nn.BatchNorm1d(1)
    state = dict(scalar.state_dict(), num_batches_tracked=np.int64(7))
    scalar.load_state_dict(state)
    assert scalar.num_batches_tracked.item() == 7 and isinstance(state["num_batches_tracked"], np.int64), (
        "the caller's dict is left alone"
    )
    with pytest.raises(RuntimeError, match="size mismatch"):
        linear.load_state_dict({"weight": np.ones((3, 3)), "bias": np.ones(1)})
    state = linear.state_dict()
    assert state._metadata and torch.nn.Linear(2, 1).load_state_dict(state, strict=True)


def test_contiguous_params_and_memory_format():
    net = flow.nn.Sequential(flow.nn.Conv2d(2, 3, 3), flow.nn.Flatten(), flow.nn.Linear(3, 2))
    before = [p.detach().clone() for p in net.parameters()]
    assert net.make_contiguous_params_group() is net
    assert len({p.untyped_storage().data_ptr() for p in net.parameters()}) == 1
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters()))
    assert net.to_memory_format(torch.channels_last) is net
    assert net[0].weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "module",
    [
        lambda: flow.nn.Dropout(0.3),
        lambda: flow.nn.CrossEntropyLoss(None, 3, "sum", 0.1),
        lambda: flow.nn.PixelShuffle(None, 2, 3),
        lambda: flow.nn.AvgPool2d(2),
        lambda: flow.nn.Embedding(3, 2),
        lambda: flow.nn.RNN(2, 3, 1, False),
    ],
)
def test_copies_and_pickles(module):
    m = module()
    other = copy.deepcopy(m)
    assert type(other) is type(m) and repr(other) == repr(m) and set(vars(other)) == set(vars(m))
    other = pickle.loads(pickle.dumps(m))  # torch's class, if the module uses no feature of OneFlow
    assert type(m) in (type(other),) and repr(other) == repr(m) and isinstance(other, type(m))


def test_a_fused_batch_norm_loads_a_dict_without_versions():
    """As flow.load gives it from a file of OneFlow's."""
    net = flow.nn.Sequential(flow.nn.FusedBatchNorm2d(3))
    plain = dict(net.state_dict())
    plain["0.running_mean"] = torch.tensor([1.0, 2.0, 3.0])
    net.load_state_dict(plain)
    assert net[0].running_mean.tolist() == [1.0, 2.0, 3.0] and "0.num_batches_tracked" not in net.state_dict()
    with pytest.raises(RuntimeError, match="num_batches_tracked"):
        net.load_state_dict({**plain, "0.num_batches_tracked": torch.tensor(3)})


def test_traced_by_fx_and_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    class Net(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.pool, self.drop, self.loss = (
                flow.nn.Conv2d(1, 2, 3),
                flow.nn.AdaptiveAvgPool2d(1),
                flow.nn.Dropout(0.0),
                flow.nn.CrossEntropyLoss(),
            )

        def forward(self, x, y):
            x = F.leaky_relu(x=self.conv(x), alpha=0.1)
            x = self.drop(F.softmax(F.max_pool2d(x, 2), 1))
            return self.loss(self.pool(x).flatten(1), y) + F.smooth_l1_loss(x, x * 2, 1.0, "mean")

    net, x, y = Net(), torch.randn(2, 1, 6, 6), torch.tensor([0, 1], dtype=torch.int32)
    assert torch.equal(make_fx(net)(x, y)(x, y), net(x, y))
    assert torch.equal(torch.fx.symbolic_trace(net)(x, y.long()), net(x, y))


def test_ddp_on_one_process_returns_the_module():
    net = flow.nn.Linear(2, 1)
    ddp = flow.nn.parallel.DistributedDataParallel
    assert (
        ddp(net) is net
        and ddp(net, broadcast_buffers=False, broadcast_parameters=True, bucket_size=5, use_bucket=False)
        is net
    )
    assert flow.nn.parallel.distributed.DistributedDataParallel is ddp
    assert (
        net.module is net
        and [*net.state_dict()] == ["weight", "bias"]
        and copy.deepcopy(net).module is not net
    )
    with net.no_sync():  # attributes of torch's wrapper that programs use
        net(flow.ones(1, 2)).sum().backward()
    assert net.weight.grad.tolist() == [[1.0, 1.0]]
    with pytest.raises((RuntimeError, ValueError), match="process group"):
        ddp(net, device_ids=None)  # torch's keyword, torch's class
    assert not torch.distributed.is_initialized()
    assert not isinstance(net, ddp)

    class Wrapper(ddp):
        pass

    assert issubclass(Wrapper, torch.nn.parallel.DistributedDataParallel)
    with pytest.raises((RuntimeError, ValueError), match="process group"):
        Wrapper(net)


def test_partial_fc_sample_keeps_every_label():
    flow.manual_seed(0)
    weight, label = torch.randn(20, 3, requires_grad=True), torch.tensor([4, 17, 4, 0])
    mapped, classes, rows = flow.nn.DistributedPariticalFCSample(8)(weight, label)
    assert (
        torch.equal(classes[mapped], label)
        and len(set(classes.tolist())) == 8
        and torch.equal(rows, weight[classes])
    )
    rows.sum().backward()
    assert torch.equal(weight.grad[:, 0].nonzero().flatten(), classes)


def test_partial_fc_in_a_graph_is_one_program_for_all_labels():
    class Head(flow.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = flow.nn.Parameter(torch.randn(20, 3))

        def forward(self, x, label):
            mapped, classes, rows = flow.distributed_partial_fc_sample(self.weight, label, 8)
            return flow.nn.functional.cross_entropy(flow.matmul(x, rows, transpose_b=True), mapped), classes

    head = Head()
    optimizer = flow.optim.SGD(head.parameters(), lr=0.1)

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.head = head
            self.config.set_backend("aten")
            self.add_optimizer(optimizer)

        def build(self, x, label):
            loss, classes = self.head(x, label)
            loss.backward()
            return loss, classes

    train, programs = Train(), set()
    for labels in ([4, 17, 4, 0], [1, 2, 3, 5], [9, 9, 9, 9]):
        before = head.weight.detach().clone()
        loss, classes = train(torch.randn(4, 3), torch.tensor(labels))
        programs.add(id(train.program))
        changed = (head.weight != before).any(1).nonzero().flatten()
        assert torch.equal(changed, classes) and set(labels) <= set(classes.tolist()) and len(classes) == 8
    assert len(programs) == 1


def test_all_reduce_on_one_process():
    x = torch.ones(2)
    assert flow.nn.AllReduce("cpu 0")(x) is x
