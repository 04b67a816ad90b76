"""Placement, SBP, and global tensors on one rank."""

import copy
import pickle

import pytest
import torch

import oneflow as flow

P = flow.placement("cpu", [0])
B = flow.sbp.broadcast


def test_placement_is_a_value():
    assert flow.placement("cpu", ranks=[0]) == P and hash(P) == hash(flow.placement("cpu", {0: [0]}))
    assert flow.placement("cpu", [[0]]) != P and flow.placement("cuda", [0]) != P
    assert repr(P) == 'oneflow.placement(type="cpu", ranks=[0])'
    assert P.ranks.tolist() == [0] and P.hierarchy == torch.Size([1]) and P.type == P.device_type == "cpu"
    grid = flow.placement("cpu", [[0, 1], [2, 3]])
    assert grid.hierarchy == torch.Size([2, 2]) and grid.ranks.shape == (2, 2)
    assert (
        grid == flow.placement("cpu", [[3, 1], [2, 0]])
        and repr(flow.placement("cpu", [2, 0])) == 'oneflow.placement(type="cpu", ranks=[0, 2])'
    )
    assert flow.placement("cpu", [3, 2, 1, 0], hierarchy=(2, 2)) == grid
    assert flow.placement.all("cpu") == P == flow.env.all_device_placement("cpu")
    assert pickle.loads(pickle.dumps(grid)) == grid
    with pytest.raises(RuntimeError, match="xpuu"):
        flow.placement("xpuu", [0])
    with pytest.raises(RuntimeError, match="different"):
        flow.placement("cpu", [0, 0])
    for ranks in (["a"], [0.5], [[0], [0, 1]], "0", [True]):
        with pytest.raises(RuntimeError, match="placement: ranks must be"):
            flow.placement("cpu", ranks)


def test_sbp_rules():
    assert flow.sbp.split(0) == flow.sbp.split(dim=0) == flow.sbp.split(axis=0) != flow.sbp.split(1)
    assert (
        B() is B
        and repr(B) == "oneflow.sbp.broadcast"
        and repr(flow.sbp.split(1)) == "oneflow.sbp.split(dim=1)"
    )
    assert isinstance(B, flow.sbp.sbp) and len({B, flow.sbp.partial_sum, flow.sbp.split(0)}) == 3
    for bad in (-1, 6):
        with pytest.raises(RuntimeError, match=str(bad)):
            flow.sbp.split(bad)


def test_to_global_and_back_keeps_autograd():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    g = x.to_global(P, flow.sbp.split(0))
    assert g.is_global and not g.is_local and g.placement == P and g.sbp == (flow.sbp.split(0),)
    y = (g * 2).to_global(sbp=B)
    assert y.sbp == (B,)
    y.to_local().sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0)) and not x.grad.is_global


def test_results_of_global_tensors_are_global():
    g = flow.ones(2, 3, placement=P, sbp=flow.sbp.split(0))
    assert (g + 1).sbp == (flow.sbp.split(0),) and g.sum().sbp == (flow.sbp.partial_sum,)
    values, indices = g.max(1)
    assert values.is_global and indices.is_global
    assert flow.nn.functional.relu(g).is_global and flow.cat([g, g]).is_global
    assert g.numpy().tolist() == [[1.0] * 3] * 2 and g.sum().item() == 6.0


@pytest.mark.parametrize("as_graph", [False, True])
def test_hooks_get_global_gradients(as_graph):
    """A hook may ask for the SBP of a gradient, and return a global gradient."""
    layer = flow.nn.Linear(2, 2).to_global(placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast)
    seen = []

    def double(gradient):
        seen.append((gradient.is_global, gradient.sbp))
        return gradient.to_global(sbp=flow.sbp.split(0)) * 2

    layer.weight.register_hook(double)
    x = flow.ones(3, 2, placement=layer.weight.placement, sbp=flow.sbp.broadcast)

    def build(x):
        hidden = layer(x)
        hidden.register_hook(double)
        (gradient,) = flow.autograd.grad(hidden.sum(), layer.weight)
        return gradient

    class Gradient(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def build(self, x):
            return build(x)

    gradient = (Gradient() if as_graph else build)(x)
    assert gradient.is_global and gradient.tolist() == [[12.0, 12.0]] * 2
    assert seen == [(True, (flow.sbp.broadcast,))] * 2


def test_local_tensors_have_no_placement():
    x = torch.ones(2)
    assert not x.is_global and x.is_local
    for name in ("placement", "sbp"):
        with pytest.raises(RuntimeError, match="local tensor"):
            getattr(x, name)
    with pytest.raises(RuntimeError, match="to_local"):
        x.to_local()
    with pytest.raises(RuntimeError, match="placement"):
        x.to_global()


def test_names_of_older_versions():
    with pytest.warns(DeprecationWarning, match="to_global"):
        x = torch.ones(2).to_consistent(P, B)
    with pytest.warns(DeprecationWarning, match="to_global"):
        layer = torch.nn.Linear(2, 2).to_consistent(P, B)
    assert x.is_global and x.is_consistent and layer.weight.is_global
    assert not torch.ones(2).is_consistent


def test_bad_requests_change_nothing():
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="there is one process.*distributed.launch"):
        x.to_global(flow.placement("cpu", [0, 1]), B)
    with pytest.raises(RuntimeError, match="1 dimensions"):
        x.to_global(P, [B, B])
    with pytest.raises(TypeError, match="sbp"):
        x.to_global(P, "broadcast")
    with pytest.raises(RuntimeError, match="does not exist"):
        x.to_global(P, flow.sbp.split(3))
    assert not x.is_global


def test_a_global_module_trains():
    torch.manual_seed(0)
    m, ref = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    ref.load_state_dict(m.state_dict())
    assert m.to_global(P, B) is m and m.weight.is_global and isinstance(m.weight, torch.nn.Parameter)
    x = torch.randn(4, 3)
    opt, opt_ref = (torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in (m, ref))
    for _ in range(3):
        for n, o, inp in ((m, opt, x.to_global(P, flow.sbp.split(0))), (ref, opt_ref, x)):
            o.zero_grad()
            n(inp).pow(2).sum().backward()
            o.step()
    assert torch.equal(m.weight.to_local(), ref.weight)
    assert not m.to_local().weight.is_global


def test_shared_parameters_stay_shared():
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    m[1].weight = m[0].weight
    m.to_global(P, B)
    assert m[0].weight is m[1].weight


def test_copies_and_pickles():
    g = torch.ones(2).to_global(P, B)
    for c in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert c.is_global and c.placement == P and c.sbp == (B,) and torch.equal(c.to_local(), g.to_local())
    m = copy.deepcopy(torch.nn.Linear(2, 2).to_global(P, B))
    assert isinstance(m.weight, torch.nn.Parameter) and m.weight.is_global and m.weight.requires_grad


def test_modules_made_in_global_mode_are_global():
    from oneflow.utils.global_view import global_mode

    nn = flow.nn
    with global_mode(True, placement=P, sbp=B):
        net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.LSTM(4, 4))
        tied = nn.Linear(4, 2, bias=False)
        tied.weight = nn.Embedding(2, 4).weight
        with global_mode(False):
            assert nn.Linear(2, 2).weight.is_local
    held = [*net.parameters(), *net.buffers(), tied.weight]
    assert len(held) == 12 and all(t.is_global and t.placement == P and t.sbp == (B,) for t in held)
    assert (
        isinstance(net[0].weight, nn.Parameter)
        and net[0].weight.requires_grad
        and not net[1].running_mean.requires_grad
    )
    assert 0 < net[0].weight.abs().max().item() <= 2**-0.5  # Linear's own first values
    net[2](net[1](net[0](flow.ones(3, 2, placement=P, sbp=B))))[0].sum().backward()
    assert net[0].weight.grad.is_global and nn.Linear(2, 2).weight.is_local


def test_global_mode_in_torchs_dialect():
    import numpy as np

    from oneflow.utils.global_view import global_mode

    flow.set_dialect("torch")
    try:
        with global_mode(True, placement=P, sbp=B), global_mode(True, placement=P, sbp=B):
            created = [
                flow.tensor([1.0]),
                flow.as_tensor([1.0], device="cpu"),
                flow.tensor(1, dtype=flow.int32, device="cpu"),
                flow.zeros(2),
            ]
            assert all(t.is_global for t in created) and flow.tensor(np.float64(1)).dtype is flow.float64
            with global_mode(False):
                assert flow.tensor([1.0]).is_local
        assert flow.tensor is torch.tensor and flow.as_tensor is torch.as_tensor
        with global_mode(True, placement=P, sbp=B):
            flow.set_dialect("oneflow")
            assert flow.tensor(np.float64(1)).dtype is flow.float32
        assert flow.tensor is not torch.tensor and flow.tensor([1.0]).is_local
    finally:
        flow.set_dialect("oneflow")


def test_tensors_made_by_a_tensor_and_the_constructor():
    from oneflow.utils.global_view import global_mode

    local, x, constructor = (
        torch.ones(2),
        torch.ones(2, 3).to_global(P, flow.sbp.split(0)),
        torch.Tensor.__dict__["__new__"],
    )
    with global_mode(True, placement=P, sbp=B):
        created = [
            flow.Tensor(2, 3),
            flow.Tensor([1.0]),
            local.new_zeros(2),
            local.new_zeros(),
            local.new_empty((2,)),
            local.new_tensor([1]),
            local.new_full((2,), 3),
        ]
        assert all(t.is_global and t.sbp == (B,) for t in created) and created[-1].tolist() == [3, 3]
        assert x.new_ones(2).sbp == x.new_tensor([1]).sbp == flow.zeros_like(x).sbp == (flow.sbp.split(0),)
        with global_mode(False):
            assert flow.Tensor(2, 3).is_local and local.new_zeros(2).is_local
    assert flow.Tensor(2, 3).is_local and local.new_zeros(2).is_local and x.new_tensor([1.0]).is_global
    assert (
        x.new_zeros(4, sbp=B).sbp == (B,)
        and x.new_zeros(()).sbp == (B,)
        and torch.Tensor.__dict__["__new__"] is constructor
    )


def test_global_mode_and_containers():
    from oneflow.utils.global_view import current_global_mode, global_mode, to_global, to_local

    with global_mode(True, placement=P, sbp=B):
        assert current_global_mode().is_enabled and current_global_mode().placement == P
        assert flow.zeros(2).is_global
        with global_mode(False):
            assert not flow.zeros(2).is_global
    assert not current_global_mode().is_enabled
    tree = to_global({"a": [torch.ones(1)], "b": (torch.ones(2),)}, P, B)
    assert tree["a"][0].is_global and tree["b"][0].is_global
    assert not to_local(tree)["a"][0].is_global

    def rule(state, tensor):
        return B if tensor is state["inner"]["step"] else flow.sbp.split(0)

    state = {"weight": torch.ones(2, 2), "inner": {"step": torch.ones(1)}}
    placed = to_global(state, placement=P, sbp=rule)
    assert placed["weight"].sbp == (flow.sbp.split(0),) and placed["inner"]["step"].sbp == (B,)
    assert to_global(state, placement=P, sbp=lambda tensor: flow.sbp.split(0))["weight"].sbp == (
        flow.sbp.split(0),
    )
    with pytest.raises(ValueError, match="needs both"):
        global_mode(True, placement=P)


def test_text_of_one_value_is_the_number():
    loss = flow.tensor(1.5).to_global(P, B)
    assert f"{loss}" == format(loss) == "1.5" and f"{loss:.2f}" == "1.50" and "sbp" in str(loss)
    vector = flow.ones(2, placement=P, sbp=B)
    assert f"{vector}" == str(vector)
    with pytest.raises(TypeError):
        f"{vector:.2f}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a process without a GPU")
@pytest.mark.parametrize(
    "make",
    [
        lambda placement: flow.ones(2, placement=placement, sbp=flow.sbp.broadcast),
        lambda placement: flow.ones(2).to_global(placement=placement, sbp=flow.sbp.broadcast),
        lambda placement: flow.nn.Linear(2, 2).to_global(placement, flow.sbp.broadcast),
    ],
)
def test_a_placement_without_its_device_is_an_error_that_names_another(make):
    with pytest.raises(AssertionError, match=r"sees no CUDA device; use flow.placement\('cpu', ranks\)"):
        make(flow.placement("cuda", [0]))
