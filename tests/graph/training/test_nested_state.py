"""Lists and dicts in the state of a user's optimizer: right in each call, or an error."""

import collections
import copy

import pytest
import torch

import oneflow as flow


def binds_in_a_dict(state, p):
    held = state.setdefault("held", {"m": torch.zeros_like(p)})
    held["m"] = held["m"] * 0.9 + p.grad
    return held["m"]


def binds_in_a_list(state, p):
    held = state.setdefault("held", [torch.zeros_like(p), None])
    held[1] = held[0] + p.grad
    held[0] = p.grad * 0.5
    return held[1]


def binds_deep(state, p):
    held = state.setdefault("held", {"a": [{"m": torch.zeros_like(p)}]})
    held["a"][0]["m"] = held["a"][0]["m"] * 0.9 + p.grad
    return held["a"][0]["m"]


def keeps_the_last_three(state, p):
    held = state.setdefault("held", [])
    held.append(p.grad.clone())
    held[:] = held[-3:]
    return sum(held) / len(held)


def pops_the_oldest(state, p):
    held = state.setdefault("held", [])
    held.append(p.grad * 2)
    if len(held) > 2:
        held.pop(0)
    return held[0] - held[-1] + p.grad


def replaces_the_list(state, p):
    state["held"] = [p.grad.clone(), *state.get("held", [])][:2]
    return sum(state["held"])


def remembers_the_one_before(state, p):
    if "m" in state:
        state["before"] = state["m"].detach()
    state["m"] = state.get("m", torch.zeros_like(p)) * 0.9 + p.grad
    return state.get("before", state["m"]) + state["m"]


def fills_and_empties(state, p):
    held = state.setdefault("held", [])
    held.append(p.grad.clone())
    if len(held) == 3:
        total = sum(held)
        held.clear()
        return total
    return torch.zeros_like(p)


def adds_a_key(state, p):
    held = state.setdefault("held", {})
    name = "a" if not held else "b"
    held[name] = held.get(name, torch.zeros_like(p)) + p.grad
    return sum(held.values())


RIGHT = [
    binds_in_a_dict,
    binds_in_a_list,
    binds_deep,
    keeps_the_last_three,
    pops_the_oldest,
    replaces_the_list,
    remembers_the_one_before,
    fills_and_empties,
    adds_a_key,
]


def counts_in_a_tuple(state, p):
    a, b = state.get("held", (0, 1))
    state["held"] = (b, a + b)
    return p.grad / (b + 1)


def counts_in_a_deque(state, p):
    held = state.setdefault("held", collections.deque([1.0], maxlen=3))
    held.append(held[-1] + 1.0)
    return p.grad / held[-1]


def counts_in_a_set(state, p):
    held = state.setdefault("held", set())
    held.add(len(held))
    return p.grad / len(held)


def removes_a_key(state, p):
    if "held" in state:
        del state["held"]
        return p.grad * 2
    state["held"] = torch.zeros_like(p)
    return p.grad


def binds_an_object(state, p):
    state["held"] = object()
    return p.grad


WRONG = [counts_in_a_tuple, counts_in_a_deque, counts_in_a_set, removes_a_key, binds_an_object]


class Own(torch.optim.Optimizer):
    def __init__(self, parameters, direction):
        super().__init__(parameters, {"lr": 0.1})
        self.direction = direction

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(self.direction(self.state[p], p), alpha=-group["lr"])


class Step(flow.nn.Graph):
    def __init__(self, model, optimizer, scaler=None):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        if scaler is not None:
            self.set_grad_scaler(scaler)
        self.config.set_backend("aten")

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss


def eager_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def pair(direction):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    models = model, copy.deepcopy(model)
    return [(m, Own(m.parameters(), direction)) for m in models]


def state_of(optimizer):
    return [dict(optimizer.state.get(p, {})) for p in optimizer.param_groups[0]["params"]]


def assert_same_state(one, other):
    torch.testing.assert_close(state_of(one), state_of(other), rtol=0, atol=0, equal_nan=True)


def named(functions):
    return pytest.mark.parametrize("direction", functions, ids=lambda function: function.__name__)


@named(RIGHT)
def test_lists_and_dicts_are_as_in_eager_in_each_call(direction):
    (model, optimizer), (twin, eager) = pair(direction)
    graph = Step(model, optimizer)
    for i in range(7):
        x = torch.full((2, 3), i / 2)
        assert torch.equal(graph(x), eager_step(twin, eager, x))
        assert all(map(torch.equal, model.parameters(), twin.parameters()))
        assert_same_state(optimizer, eager)
    for x in (torch.ones(2, 3), torch.zeros(2, 3)):  # eager mode goes on from this state
        eager_step(model, optimizer, x), eager_step(twin, eager, x)
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


@named(WRONG)
def test_other_state_is_right_or_an_error(direction):
    (model, optimizer), (twin, eager) = pair(direction)
    graph = Step(model, optimizer)
    with pytest.raises(RuntimeError, match="state 'held'"):
        for i in range(7):
            x = torch.full((2, 3), i / 2)
            assert torch.equal(graph(x), eager_step(twin, eager, x))
            assert all(map(torch.equal, model.parameters(), twin.parameters()))


def test_an_equal_tuple_is_no_change():
    def shapes(state, p):
        state["shape"] = p.shape
        state["factors"] = (1, 2.0)
        return p.grad * state["factors"][1]

    (model, optimizer), (twin, eager) = pair(shapes)
    graph = Step(model, optimizer)
    for _ in range(3):
        assert torch.equal(graph(torch.ones(2, 3)), eager_step(twin, eager, torch.ones(2, 3)))


@named([keeps_the_last_three, adds_a_key, replaces_the_list])
def test_a_run_that_fails_leaves_the_state_of_before(direction, monkeypatch):
    (model, optimizer), (twin, eager) = pair(direction)
    graph, x = Step(model, optimizer), torch.ones(2, 3)
    for calls in range(3):

        def fails(*values):
            raise MemoryError

        with monkeypatch.context() as patched:
            patched.setattr("oneflow._graph.call.entry._prepared", lambda captured, run: fails)
            with pytest.raises(MemoryError):
                graph(x)
        assert_same_state(optimizer, eager)
        assert torch.equal(graph(x), eager_step(twin, eager, x))
        assert_same_state(optimizer, eager)


@named([keeps_the_last_three, binds_in_a_dict])
def test_a_step_that_overflows_leaves_the_state_of_before(direction):
    (model, optimizer), (twin, eager) = pair(direction)
    graph = Step(model, optimizer, flow.amp.GradScaler(init_scale=2.0, growth_interval=100))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=100)
    for value in (1.0, float("inf"), 2.0, float("inf"), 3.0, 4.0, 5.0):
        x = torch.full((2, 3), value)
        eager.zero_grad()
        loss = twin(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(eager)
        scaler.update()
        graph(x)
        assert all(map(torch.equal, model.parameters(), twin.parameters()))
        assert_same_state(optimizer, eager)
