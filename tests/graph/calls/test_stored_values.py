"""Values that a step puts into lists, dicts and attributes outside: each run stores its own."""

import collections
import copy
import functools
import heapq
import queue
import resource
import types
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import oneflow as flow

pytestmark = pytest.mark.eager_calls

IN_A_PROGRAM, IN_EAGER_MODE = {}, {}


def in_a_program(make):
    IN_A_PROGRAM[make.__name__] = make
    return make


def in_eager_mode(make):
    IN_EAGER_MODE[make.__name__] = make
    return make


class Meter:
    def __init__(self):
        self.sum, self.count, self.average = 0.0, 0, 0.0

    def update(self, value, n):
        self.sum += value * n
        self.count += n
        self.average = self.sum / self.count


class Slots:
    __slots__ = ("value",)


# Each gets a namespace `box` with the list `a` and the dict `d`, and returns what a step does with its loss.
@in_a_program
def appended_number(box):
    return lambda loss: box.a.append(loss.item())


@in_a_program
def appended_tensor(box):
    return lambda loss: (box.a.append(loss.detach()), loss)[1]


@in_a_program
def appended_loss_with_a_history(box):
    return lambda loss: box.a.append(loss)


@in_a_program
def appended_structure(box):
    return lambda loss: box.a.append({"loss": loss.item(), "n": 3, "tensors": (loss.detach(), [loss.item()])})


@in_a_program
def extended(box):
    return lambda loss: box.a.extend([loss.item(), 1, loss.detach()])


@in_a_program
def by_a_function(box):
    def log(name, value):
        box.a.append((name, value))

    def use(loss):
        log("loss", loss.item())
        log("twice", 2 * loss.item() - 1)

    return use


@in_a_program
def entries(box):
    def use(loss):
        box.d["loss"] = loss.item()
        box.d["n"] = 3

    return use


@in_a_program
def attribute(box):
    def use(loss):
        box.last = [loss.item()]
        return box.last[0]

    return use


@in_a_program
def attribute_in_a_slot(box):
    box.slots = Slots()

    def use(loss):
        box.slots.value = loss.item()

    box.seen = lambda: getattr(box.slots, "value", None)
    return use


@in_a_program
def variable_of_a_closure(box):
    last = None

    def use(loss):
        nonlocal last
        last = loss.item()

    box.seen = lambda: last
    return use


@in_a_program
def two_names_of_one_list(box):
    other = box.a

    def use(loss):
        box.a.append(loss.item())
        other.append(-loss.item())

    return use


@in_a_program
def queue_of_an_end(box):
    box.q = collections.deque()
    return lambda loss: box.q.append(loss.item())


@in_a_program
def count_of_rows(box):
    return lambda loss: box.a.append((loss > 0.1).sum().item())


Pair = collections.namedtuple("Pair", "h c")
STATES = {  # what makes the state of a recurrent step from two tensors -> how the step reads them
    "tuple": (lambda h, c: (h, c), lambda state: state),
    "tuple_in_a_tuple": (lambda h, c: ((h,), c), lambda state: (state[0][0], state[1])),
    "named_tuple": (Pair, lambda state: (state.h, state.c)),
    "list": (lambda h, c: [h, c], lambda state: state),
    "dict": (lambda h, c: {"h": h, "c": c}, lambda state: (state["h"], state["c"])),
    "one_tensor_twice": (lambda h, c: (h, h), lambda state: state),
}


def state_of(kind):
    def make(box):
        pack, unpack = STATES[kind]
        box.state = pack(torch.zeros(()), torch.ones(()))
        box.seen = lambda: box.state

        def use(loss):
            h, c = unpack(box.state)
            h = loss.detach() + 0.5 * h
            box.state = pack(h, c * h)
            return h

        return use

    make.__name__ = f"state_in_a_{kind}"
    return make


for kind in STATES:
    in_a_program(state_of(kind))


@in_a_program
def state_in_a_variable(box):
    state = torch.zeros(()), torch.ones(())
    box.seen = lambda: state

    def use(loss):
        nonlocal state
        state = loss.detach() + 0.5 * state[0], state[0] * state[1]

    return use


@in_a_program
def state_in_an_entry(box):
    box.d["state"] = torch.zeros(()), torch.ones(())

    def use(loss):
        box.d["state"] = loss.detach() + 0.5 * box.d["state"][0], loss.detach()

    return use


@in_a_program
def state_of_an_lstm(box):
    lstm = nn.LSTM(3, 2)
    box.state = torch.zeros(1, 2), torch.zeros(1, 2)
    box.seen = lambda: box.state

    def use(loss):
        output, state = lstm(torch.ones(4, 3) * loss.detach(), box.state)
        box.state = tuple(part.detach() for part in state)
        return output.detach()

    return use


@in_a_program
def state_that_the_user_replaces(box):
    box.state = torch.zeros(()), torch.ones(())
    calls = []

    def use(loss):
        h, c = box.state
        box.state = loss.detach() + h, c * 0.5
        return h + c

    def seen():
        calls.append(1)
        if len(calls) == 3:
            box.state = torch.full((), 7.0), torch.full((), 9.0)
        return box.state

    box.seen = seen
    return use


@in_eager_mode
def state_that_grows(box):
    box.state = []
    box.seen = lambda: box.state

    def use(loss):
        box.state = [*box.state, loss.detach()]

    return use


@in_eager_mode
def state_that_moves_on(box):
    box.state = torch.zeros(()), torch.ones(())
    box.seen = lambda: box.state

    def use(loss):
        box.state = box.state[1], loss.detach()

    return use


@in_eager_mode
def parameter_itself(box):
    weight = nn.Parameter(torch.ones(2))

    def use(loss):
        box.a.append(weight)
        with torch.no_grad():
            weight.add_(1)
        return box.a[-1] is weight

    return use


@in_eager_mode
def view_of_a_parameter(box):
    weight = nn.Parameter(torch.ones(2))

    def use(loss):
        box.a.append(weight.detach()[:1])  # all of them show the present weight
        with torch.no_grad():
            weight.add_(1)

    return use


def clock(box):
    def use(loss):
        box.last = resource.getrusage(resource.RUSAGE_SELF).ru_utime

    return use


@in_eager_mode
def length_read_before(box):
    def use(loss):
        n = len(box.a)
        box.a.append(loss.item())
        return n

    return use


@in_eager_mode
def length_read_after(box):
    def use(loss):
        box.a.append(loss.item())
        return len(box.a)

    return use


@in_eager_mode
def element_read_after(box):
    box.a.append(5.0)

    def use(loss):
        box.a.append(loss.item())
        return box.a[0], box.a[-2]

    return use


@in_eager_mode
def mean_of_all(box):
    def use(loss):
        box.a.append(loss.item())
        return sum(box.a) / len(box.a)

    return use


@in_eager_mode
def returned_list(box):
    def use(loss):
        box.a.append(loss.detach())
        return box.a

    return use


@in_a_program
def running_total(box):
    box.total = 0.0

    def use(loss):
        box.total += loss.item()

    return use


@in_eager_mode
def meter(box):
    box.meter = Meter()
    box.seen = lambda: dict(vars(box.meter))
    return lambda loss: box.meter.update(loss.item(), 5)


@in_eager_mode
def inserted_in_front(box):
    return lambda loss: box.a.insert(0, loss.item())


@in_eager_mode
def heap(box):
    return lambda loss: heapq.heappush(box.a, (loss.item(), 1))


@in_eager_mode
def smallest(box):
    box.best = 9.0

    def use(loss):
        box.best = min(box.best, loss.item())

    return use


@in_eager_mode
def last_three(box):
    box.q = collections.deque(maxlen=3)

    def use(loss):
        box.q.append(loss.item())
        return len(box.q)

    return use


@in_eager_mode
def kept_by_two(box):
    box.pair = [None]

    def use(loss):
        box.last = loss.item()
        box.pair[0] = box.last

    return use


@in_eager_mode
def text(box):
    return lambda loss: box.a.append(f"{loss.item():.4f}")


@in_eager_mode
def function_that_runs_once(box):
    @functools.lru_cache
    def log(name):
        box.a.append(name)

    def use(loss):
        log("begin")
        return f"{loss.item():.3f}"

    return use


@in_eager_mode
def an_object_of_c(box):
    box.queue = queue.SimpleQueue()
    box.seen = box.queue.qsize

    def use(loss):
        box.queue.put(loss.item())
        return len(f"{loss.item()}") > 0

    return use


def picture(value):
    if isinstance(value, torch.Tensor):
        return "tensor", value.tolist()
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [picture(element) for element in value]
    if isinstance(value, dict):
        return "dict", [(key, picture(element)) for key, element in value.items()]
    return type(value).__name__, repr(value)


def outcome(make, is_compiled, strict=False):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    box = types.SimpleNamespace(a=[], d={}, seen=lambda: None)
    use = make(box)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return use(loss)

    run = flow.compile_step(step, backend="aten", strict=strict) if is_compiled else step
    pictures = []
    for i in range(6):
        torch.manual_seed(i)
        result = run(torch.randn(3, 4))
        others = {k: v for k, v in vars(box).items() if k not in ("seen", "slots", "meter", "queue")}
        pictures.append((picture(result), picture(others), picture(box.seen())))
        if i == 2 and make is not element_read_after:
            box.a.clear()  # as at the end of an epoch
    return pictures, run


@pytest.mark.parametrize("make", IN_A_PROGRAM.values(), ids=IN_A_PROGRAM)
def test_each_run_stores_its_values(make):
    expected = outcome(make, False)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual, step = outcome(make, True, strict=True)
    assert actual == expected
    assert len(step.graph._engine.programs) == 1


@pytest.mark.parametrize("make", IN_EAGER_MODE.values(), ids=IN_EAGER_MODE)
def test_a_value_that_a_later_call_finds_is_that_of_eager_mode(make):
    expected = outcome(make, False)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        actual = outcome(make, True)[0]
    assert actual == expected


@pytest.mark.parametrize("make", [length_read_after, inserted_in_front])
def test_a_strict_step_raises_and_stores_nothing(make):
    boxes = []

    def with_box(box):
        boxes.append(box)
        return make(box)

    with pytest.raises(flow._graph.errors.CaptureError):
        outcome(with_box, True, strict=True)
    assert boxes[0].a == []


def test_a_graph_stores_in_a_list_of_a_closure():
    losses = []

    class Step(flow.nn.Graph):
        def build(self, x):
            loss = x.square().sum()
            losses.append(loss.item())
            return loss

    step = Step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (1.0, 2.0, 3.0):
            step(torch.tensor([value]))
    assert losses == [1.0, 4.0, 9.0]
    assert len(step._engine.programs) == 1


@pytest.mark.parametrize("make", [text, clock])
def test_a_text_and_a_clock_are_behind_the_program(make):
    step = outcome(make, True, strict=True)[1]
    reason = {text: "needs the value of a tensor", clock: "a clock"}[make]
    assert reason in step.graph.explain() and "run in Python after each run" in step.graph.explain()


# -- tensors that one call stores and the next one reads ---------------------------------------
class Slotted:
    __slots__ = ("state",)


class Plain:
    pass


def in_object(cls):
    def make():
        holder = cls()
        holder.state = None

        def step(x):
            y = x if holder.state is None else torch.tanh(x + holder.state)
            holder.state = y * 2
            return y

        return step, lambda: holder.state

    return make


def in_dict():
    table = {"state": None, "calls": "none"}

    def step(x):
        y = x if table["state"] is None else torch.tanh(x + table["state"])
        table["state"] = y * 2
        return y

    return step, lambda: table["state"]


def in_closure():
    state = None

    def step(x):
        nonlocal state
        y = x if state is None else torch.tanh(x + state)
        state = y * 2
        return y

    return step, lambda: state


def in_two_objects():
    first, second = Plain(), Plain()
    first.state = second.state = torch.zeros(2)

    def step(x):
        first.state, second.state = second.state + x, first.state * 0.5 - x
        return first.state * second.state

    return step, lambda: torch.stack([first.state, second.state])


def in_place_later():
    holder = Plain()
    holder.state = torch.ones(2)

    def step(x):
        holder.state.mul_(0.5)
        holder.state = holder.state + x
        return holder.state * 1.0

    return step, lambda: holder.state


def growing():
    holder = Plain()
    holder.state = torch.ones(1)

    def step(x):
        holder.state = torch.cat([holder.state, x])
        return holder.state.sum()

    return step, lambda: holder.state


CARRIED = {
    "attribute": (in_object(Plain), 2),
    "slot": (in_object(Slotted), 2),
    "dict": (in_dict, 2),
    "closure": (in_closure, 2),
    "two": (in_two_objects, 2),  # at first both are one tensor
    "in_place": (in_place_later, 1),
    "growing": (growing, 6),
}


@pytest.mark.parametrize("name", CARRIED)
def test_a_tensor_that_each_call_reads_and_stores_anew_is_carried_by_one_program(name):
    make, programs = CARRIED[name]
    (eager, state), (step, compiled_state) = make(), make()
    run = flow.compile_step(step, backend="aten")
    kept = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first call may run in eager mode
        for k in range(6):
            x = torch.tensor([0.5, k - 2.0])
            assert torch.equal(run(x), eager(x))
            assert torch.equal(compiled_state(), state())
            kept.append((compiled_state(), compiled_state().clone()))
    if name != "in_place":
        assert all(torch.equal(tensor, copy) for tensor, copy in kept)
    assert 1 <= len(run.graph._engine.programs) <= programs


def test_a_list_that_a_refused_capture_has_replaced_is_there_again():
    """The old list got an element before, which is taken back as well."""
    model, log = nn.Linear(2, 2), {"kept": []}

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        log["kept"].append(copy.deepcopy(model.state_dict()))
        log["kept"] = log["kept"][-2:]

    step = flow.compile_step(step, backend="aten")
    for count in (1, 2, 2):
        step(torch.ones(1, 2))
        assert len(log["kept"]) == count
        assert not any(isinstance(tensor, FakeTensor) for state in log["kept"] for tensor in state.values())


@pytest.mark.eager_calls
@pytest.mark.parametrize("asks_for_text", [False, True], ids=["number", "text"])
@pytest.mark.parametrize("base", [dict, collections.OrderedDict])
def test_attributes_that_are_items_of_a_dict_are_those_of_eager_mode(base, asks_for_text):
    class DotDict(base):
        __getattr__, __setattr__, __delattr__ = base.__getitem__, base.__setitem__, base.__delitem__

    def states(compiled):
        torch.manual_seed(0)
        model, state, seen = nn.Linear(2, 1), DotDict(step=0, weight=1.0, total=0.0, texts=[]), []

        def step(x):
            state.step += 1
            loss = model(x).square().mean() * state.weight
            loss.backward()
            if asks_for_text:
                state.texts.append(f"{loss.item():.3f}")
            state.weight = state.weight * 0.9
            state.last = loss.detach()
            state.total += loss.item()
            if state.step == 3:
                del state.last
            return state.step

        run = flow.compile_step(step, backend="aten") if compiled else step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a call may run in eager mode
            for k in range(5):
                number = run(torch.tensor([[1.0, float(k)]]))
                seen.append((number, list(state), [str(value) for value in state.values()]))
        return seen

    assert states(compiled=True) == states(compiled=False)
