"""nn.Graph as OneFlow's test files use it: order of calls, tracing flag, saving."""

import pytest

import oneflow as flow
import oneflow.framework.graph_build_util as graph_build_util
import oneflow.nn as nn


class Infer(nn.Graph):
    def __init__(self, module=None):
        super().__init__()
        self.config.set_backend("aten")
        self.module = module or nn.Linear(3, 2)
        self.seen = []

    def build(self, x):
        self.seen.append(graph_build_util.lazy_mode.is_enabled())
        with graph_build_util.lazy_mode.guard(False):
            self.seen.append(graph_build_util.lazy_mode.is_enabled())
        return self.module(x)


def test_the_tracing_flag_is_on_in_build_only():
    graph = Infer()
    assert not graph_build_util.lazy_mode.is_enabled()
    graph(flow.ones(1, 3))
    assert graph.seen == [True, False] and not graph_build_util.lazy_mode.is_enabled()
    with graph_build_util.lazy_mode.guard(True):
        assert graph_build_util.lazy_mode.is_enabled()


def test_loading_after_the_first_call_is_an_assertion_and_a_runtime_error():
    graph = Infer()
    state = graph.state_dict()
    graph.load_state_dict(state)
    graph(flow.ones(1, 3))
    for kind in (AssertionError, RuntimeError):
        with pytest.raises(kind, match="first call"):
            graph.load_state_dict(state)


def test_debug_arguments_are_checked():
    graph = Infer()
    with pytest.raises(ValueError, match="ranks"):
        graph.debug(1, ranks="0")
    with pytest.raises(AssertionError, match="-2"):
        graph.debug(-2)
    graph.debug(-1, ranks=[0]), graph.debug(v_level=-1, ranks=-1, max_py_stack_depth=3)


def test_flow_save_takes_a_graph(tmp_path):
    graph, x = Infer(), flow.randn(4, 3)
    graph.config.eager_calls(False)  # the program leaves out that build() appends to a list
    want = graph(x)
    flow.save(graph, tmp_path / "net")
    assert flow.equal(flow.load_graph(tmp_path / "net")(x), want)
    assert flow.equal(flow.load(tmp_path / "net")(x), want)


def test_walking_over_a_block_gives_blocks():
    graph = Infer(nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2))))
    names = [(n, type(b.to(nn.Module)).__name__) for n, b in graph.module.named_modules()]
    assert names == [
        ("", "Sequential"),
        ("0", "Linear"),
        ("1", "Sequential"),
        ("1.0", "ReLU"),
        ("1.1", "Linear"),
    ]
    for block in graph.module.modules():
        block.to(nn.graph.GraphModule).activation_checkpointing = True
    assert graph.module[1][1].to(nn.graph.GraphModule).activation_checkpointing
    assert [b.to(nn.graph.GraphModule).name for b in graph.module.children()] == ["0", "1"]
    assert graph(flow.ones(1, 3)).shape == (1, 2)


def test_branches_on_constants_and_sampled_numbers_are_captured_and_one_on_written_memory_is_refused():
    class Constant(nn.Graph):
        def build(self, x):
            mask = flow.ones(3, 3).triu(1) == 1
            return x * 2 if bool((mask.sum() == 3).all()) else x

    class Written(nn.Graph):
        def build(self, x):
            table = flow.zeros(3)
            table[0] = x.sum()
            return x * 2 if table.sum() > 0 else x

    class Random(nn.Graph):
        def build(self, x):
            return x * 2 if flow.rand(1).sum() > 0 else x

    for graph in (Constant(), Random()):
        assert graph(flow.ones(2)).tolist() == [2.0, 2.0]
    written = Written()
    written.config.strict()
    with pytest.raises(RuntimeError, match="needs the value of a tensor"):
        written(flow.ones(2))


@pytest.mark.parametrize(
    "one_hot",
    [lambda i: nn.functional.one_hot(i, 3), lambda i: flow._C.one_hot(i, 3, on_value=1, off_value=0)],
    ids=["functional", "_C"],
)
def test_one_hot_of_a_tensor_from_outside_build(one_hot):
    labels = flow.tensor([0, 2])

    class G(nn.Graph):
        def build(self, x):
            return x + one_hot(labels), one_hot(labels)

    shifted, hot = G()(flow.zeros(2, 3))
    assert hot.dtype is flow.int64 and hot.tolist() == shifted.long().tolist() == [[1, 0, 0], [0, 0, 1]]


def test_numpy_in_build_names_the_users_line():
    class G(nn.Graph):
        def build(self, x):
            return flow.tensor((x + 1).numpy())

    graph = G()
    with pytest.warns(UserWarning, match=r"(?s)eager mode.*NumPy array.*x \+ 1\).numpy"):
        assert graph(flow.ones(2)).tolist() == [2.0, 2.0]


def test_blocks_know_their_origin_as_in_0_8():
    """libai 0.1: `for block in graph.model.modules(): if isinstance(block.origin, Layer):
    block.config.activation_checkpointing = True`.
    """

    class Plain(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def build(self, x):
            return self.model(x)

    graph = Plain()
    assert [type(block.origin) for block in graph.model.modules()] == [nn.Sequential, nn.Linear, nn.ReLU]
    assert graph.model[0].weight.origin is graph.model[0].origin.weight
    for block in graph.model.modules():
        block.config.activation_checkpointing = isinstance(block.origin, nn.Linear)
    graph.model[0].weight.config.stage_id = 0
    assert graph.model[0].weight.config.stage_id == 0
    assert graph.model[0].config.activation_checkpointing and graph(flow.ones(3, 2)).shape == (3, 2)


@pytest.mark.parametrize("bool_tensor", ["argument", "computed"])
def test_a_mask_is_turned_round_in_a_graph(bool_tensor):
    class Mask(nn.Graph):
        def build(self, x, mask):
            mask = mask if bool_tensor == "argument" else x > 0
            y = x.clone()
            y -= mask
            return x - 10000.0 * (1 - mask), mask - 1, y

    x, mask = flow.tensor([1.0, -1.0]), flow.tensor([True, False])
    masked, less, in_place = Mask()(x, mask)
    assert in_place.tolist() == [0.0, -1.0]
    assert masked.tolist() == [1.0, -10001.0] and less.tolist() == [0, -1]


def test_a_step_of_the_schedule_by_the_program_counts_once():
    """libai's trainer steps the schedule after each call of the graph, so that Python shows the rate;
    OneFlow's graph has an internal schedule.
    """
    weight = nn.Parameter(flow.zeros(1))
    optimizer = flow.optim.SGD([weight], lr=1.0)
    schedule = flow.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.ParameterList([weight])
            self.add_optimizer(optimizer, lr_sch=schedule)

        def build(self):
            loss = weight.sum()
            loss.backward()
            return loss

    train, steps, was = Train(), [], 0.0
    for step in (True, False, True, True):
        train()
        steps.append(was - weight.item())
        was = weight.item()
        if step:
            schedule.step()
    assert steps == [1.0, 0.5, 0.25, 0.125] and schedule.last_step == 4  # the rates of OneFlow 0.9.0
    optimizer.step()  # an eager step in between: then the schedule moves
    schedule.step()
    assert schedule.last_step == 5
    schedule.step()
    assert schedule.last_step == 6 and optimizer.param_groups[0]["lr"] == 0.5**6


def test_recomputation_makes_one_program():
    """libai turns it on for each layer; the second call must find the first one's program."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return self.linear(x).tanh()

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = nn.Sequential(Layer(), Layer())
            self.add_optimizer(flow.optim.SGD(self.model.parameters(), lr=0.1))
            for block in self.model.modules():
                block.config.activation_checkpointing = isinstance(block.to(nn.Module), Layer)

        def build(self, x):
            runs.append(x)
            loss = self.model(x).sum()
            loss.backward()
            return loss

    runs = []
    train = Train()
    train.config.eager_calls(False)  # build() appends to a list
    for _ in range(3):
        train(flow.ones(2, 4))
    assert len(runs) == 1
