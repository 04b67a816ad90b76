"""Functions of oneflow refuse wrong arguments with the error classes of OneFlow and torch."""

import pytest
import torch
from function_cases import T, m, t

import oneflow as flow


def test_wrong_calls_raise_torchs_error():
    for call in (
        lambda: flow.matmul(m()),
        lambda: flow.eq("a", t()),
        lambda: flow.transpose(m()),
        lambda: flow.max(t(), True, True, True),
        lambda: flow.scatter(t(), 0, T([1]), src="x"),
        lambda: flow.median(t(), nonsense=1),
        lambda: flow.gather(m(), 1, T([0]), False, 1),
        lambda: flow.add([]),
        lambda: flow.cat(inputs=[t()], tensors=[t()]),
        lambda: flow.split(x=m(), tensor=m(), split_size_or_sections=1),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        flow.topk(t(), 9)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        flow.matmul(m(), m())
    with pytest.raises(RuntimeError, match="agree"):
        flow.roc_auc_score(torch.zeros(2), torch.ones(3))


def _sgd(**options):
    return flow.optim.SGD([flow.nn.Parameter(torch.ones(2))], **{"lr": 0.1, **options})


class _Mine(torch.optim.SGD):
    def __init__(self, params, mode):
        if mode != "a":
            raise ValueError(f"mode {mode}")
        super().__init__(params, lr=0.1)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: _sgd(lr=-1.0), ValueError),
        (lambda: _sgd(momentum=-1.0), ValueError),
        (lambda: flow.optim.Adam([t()], betas=(1.0, 0.9)), ValueError),
        (lambda: flow.optim.AdamW([t()], eps=-1.0), ValueError),
        (lambda: flow.optim.LAMB([t()], betas=(2.0, 0.9)), ValueError),
        (lambda: flow.optim.lr_scheduler.StepLR(_sgd(), 0), ValueError),
        (lambda: flow.optim.lr_scheduler.PolynomialLR(_sgd(), 0), ValueError),
        (lambda: flow.nn.Graph().add_optimizer(3), TypeError),
        (lambda: flow.nn.Graph().set_grad_scaler(3), TypeError),
        (lambda: flow.nn.Graph().config.enable_amp("x"), TypeError),
        (lambda: flow.nn.Graph().config.enable_zero(stage=7), ValueError),
        (lambda: flow.nn.Graph().debug("a"), TypeError),
        (lambda: flow.zeros(2, sbp=flow.sbp.broadcast), TypeError),
        (
            lambda: flow.zeros(2, placement=flow.placement("cpu", [0]), sbp=flow.sbp.broadcast, device="cpu"),
            TypeError,
        ),
    ],
)
def test_where_oneflow_asserts_both_classes_catch(call, error):
    for kind in (error, AssertionError):
        with pytest.raises(kind):
            call()


def test_the_classes_of_other_errors_stay():
    with pytest.raises(ValueError, match="^mode b$") as caught:
        _Mine([t()], "b")
    assert type(caught.value) is ValueError and type(_Mine([t()], "a")) is _Mine


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda x: flow.slice(x, 3), ValueError),
        (lambda x: flow.slice(x, [[0, 1, 1]] * 3), ValueError),
        (lambda x: flow.slice(x, [[0, 1.5, 1]]), ValueError),
        (lambda x: flow.slice(x, [[0, 1]]), ValueError),
        (lambda x: flow.slice_update(x, x, [[0, 1, 1]] * 3), ValueError),
        (lambda x: flow.batch_gather(x, torch.zeros(2, 1)), TypeError),
        (lambda x: flow.gather_nd(x, torch.zeros(1, 2)), RuntimeError),
        (lambda x: flow.gather_nd(x, T([[0, 0, 0]])), RuntimeError),
        (lambda x: flow.scatter_nd(T([[0, 0]]), torch.ones(1), [2]), RuntimeError),
    ],
)
def test_indexing_functions_refuse_with_oneflows_classes(call, error):
    with pytest.raises(error):
        call(torch.ones(2, 3))


@pytest.mark.parametrize(
    "targets, predictions",
    [
        (T([1, 2]), torch.ones(3, 3)),
        (T([1.0]), torch.ones(1, 3)),
        (T([[1]]), torch.ones(1, 3)),
        (T([1]), torch.ones(3)),
        (T([1]), T([[1, 2]])),
    ],
)
def test_in_top_k_refuses_other_shapes_and_dtypes(targets, predictions):
    with pytest.raises(RuntimeError, match="in_top_k: targets must"):
        flow.in_top_k(targets, predictions, 1)


SLICES_WITH_A_BAD_STEP = {
    "flow.slice": lambda x, step: flow.slice(x, [[0, 4, step]]),
    "flow.slice_update": lambda x, step: flow.slice_update(x.clone(), torch.ones(1), [[0, 4, step]]),
    "_C.slice": lambda x, step: flow._C.slice(x, [0], [4], [step]),
    "_C.slice_update": lambda x, step: flow._C.slice_update(x, torch.ones(1), [0], [4], [step]),
}


@pytest.mark.parametrize("step", [0, -1])
@pytest.mark.parametrize("function", SLICES_WITH_A_BAD_STEP)
def test_a_bad_step_of_a_slice_is_the_error_of_both_libraries_in_a_graph_too(function, step):
    """OneFlow 0.9 raises ValueError or RuntimeError, and torch raises ValueError."""
    call = SLICES_WITH_A_BAD_STEP[function]

    class Slices(flow.nn.Graph):
        def build(self, x):
            return call(x, step)

    for run in (lambda x: call(x, step), Slices()):
        with pytest.raises(ValueError, match="above 0") as caught:
            run(torch.ones(4))
        assert isinstance(caught.value, RuntimeError)


@pytest.mark.parametrize("step", [0, -1, 1.5])
@pytest.mark.parametrize("index", [lambda s: s, lambda s: (..., s), lambda s: (torch.tensor([0]), s)])
def test_a_bad_step_of_an_index_is_torchs_error_in_a_graph_too(index, step):
    def read(x):
        return x[index(slice(None, None, step))]

    def write(x):
        x = x.clone()
        x[index(slice(None, None, step))] = 1.0
        return x

    for function in (read, write):

        class Indexes(flow.nn.Graph):
            def build(self, x):
                return function(x)

        with pytest.raises((ValueError, TypeError)) as eager:
            function(torch.ones(2, 4))
        with pytest.raises(type(eager.value)) as in_graph:
            Indexes()(torch.ones(2, 4))
        assert str(in_graph.value).partition("\n")[0] == str(eager.value).partition("\n")[0]
