"""Programs of fuzz_ranks.py in which the ranks differ in one fact of a graph: a value, a parameter, an
option, a size.

Each program yields up to three calls of a graph: one that all ranks make alike, one in which a rank differs,
which has to raise on every rank, and one after the difference is gone, which has to work. `None` leaves a
call out.
"""

import time
import types

import torch
from rank_programs import S0, S1, B, UserError, entry

import oneflow as flow
from oneflow import nn

F = nn.functional


class Step(nn.Graph):
    """A training step over two layers. `body(graph, x)` returns the loss."""

    def __init__(
        self, p, body, optimizer=flow.optim.SGD, options=None, configure=None, schedule=None, **facts
    ):
        super().__init__()
        flow.manual_seed(3)
        self.first = nn.Linear(4, 4).to_global(p.ranks, B)
        self.second = nn.Linear(4, 4).to_global(p.ranks, B)
        self.__dict__.update(facts)
        self.body = body
        if optimizer is not None:
            parameters = [*self.first.parameters(), *self.second.parameters()]
            self.optimizer = optimizer(parameters, **{"lr": 0.1, **(options or {})})
            self.__dict__["trains"] = True
            self.add_optimizer(self.optimizer, lr_sch=schedule(self.optimizer) if schedule else None)
        if configure:
            configure(self.config)

    def build(self, x, *args, **kwargs):
        loss = self.body(self, x, *args, **kwargs)
        if "trains" in self.__dict__ and loss.requires_grad:
            loss.backward()
        return loss


def plain(graph, x):
    return graph.second(graph.first(x).relu()).sum()


def differs(named="graph", **options):
    """Decorator of a generator of calls (graph, arguments...)."""

    def decorate(calls):
        def program(p):
            run(p, calls(p))

        program.__name__ = calls.__name__
        entry("other", named=named, kinds=("disagrees",), **options)(program)
        return calls

    return decorate


def run(p, calls):
    before = next(calls)
    for _ in range(2 if before else 0):
        call(*before)
    different = next(calls)
    error, start = None, time.monotonic()
    try:
        call(*different)
    except Exception as raised:
        error = raised
    p.seconds = time.monotonic() - start
    after = next(calls)
    if after:
        call(*after)
        check_copies(p, after[0])
    if error is not None:
        raise error


def call(graph, *args, **kwargs):
    out = graph(*args, **kwargs)
    return out.numpy() if isinstance(out, torch.Tensor) and out.is_global else out


def check_copies(p, graph):
    """The copies of a replicated weight are the same on all ranks."""
    own = getattr(graph, "first", None)
    if own is not None and own.weight.is_global and own.weight.sbp == (B,):
        mine = own.weight.to_local().detach().clone()
        copies = [torch.empty_like(mine) for _ in range(p.world)]
        flow.comm.all_gather(copies, mine)
        assert all(torch.equal(copy, mine) for copy in copies), "the copies of a weight differ between ranks"


def value(name, good, other, body, first=False, **options):
    """Add a program in which an attribute of the graph has another value on one rank."""

    def calls(p):
        graph = Step(p, body, **options, fact=p.choose(good, None, other) if first else good)
        yield None if first else (graph, p.split)
        graph.fact = p.choose(good, None, other)
        yield graph, p.split
        graph.fact = good
        yield graph, p.split

    calls.__name__ = name
    differs()(calls)


def activation(graph, x):
    return getattr(F, graph.fact)(graph.first(x)).sum()


def looped(graph, x):
    for _ in range(graph.fact):
        x = graph.first(x)
    return x.sum()


def branch(graph, x):
    return (graph.first(x).relu() if graph.fact else graph.first(x)).sum()


def without_gradient(graph, x):
    hidden = graph.first(x)
    return graph.second(hidden.detach() if graph.fact else hidden).sum()


def in_no_grad(graph, x):
    with torch.set_grad_enabled(not graph.fact):
        hidden = graph.first(x)
    return graph.second(hidden).sum()


def filled(graph, x):
    ranks = flow.placement.all("cpu")
    return (graph.first(x) + flow.full((4,), graph.fact, placement=ranks, sbp=B)).sum()


def two_losses(graph, x):
    return (graph.first(x) if graph.fact else graph.second(x)).sum()


value("a_number", 2.0, 3.0, lambda graph, x: plain(graph, x) * graph.fact)
value("a_number_at_first", 2.0, 3.0, lambda graph, x: plain(graph, x) * graph.fact, first=True)
value("a_small_difference", 0.1, 0.1 + 1e-16 * 3, lambda graph, x: plain(graph, x) * graph.fact)
value("an_exponent", 2, 3, lambda graph, x: graph.first(x).pow(graph.fact).sum())
value("a_dimension", 0, 1, lambda graph, x: graph.first(x).softmax(graph.fact).square().sum())
value("a_branch", True, False, branch)
value("a_branch_at_first", True, False, branch, first=True)
value("a_branch_on_none", None, 1.0, lambda graph, x: plain(graph, x) + (graph.fact or 0.0))
value("a_loop", 1, 2, looped)
value("a_text", "relu", "gelu", activation)
value("an_item_of_a_list", [2.0, 1.0], [2.0, 5.0], lambda graph, x: plain(graph, x) * graph.fact[1])
value("the_length_of_a_list", [2.0], [2.0, 5.0], lambda graph, x: plain(graph, x) * sum(graph.fact))
value("a_value_of_a_dict", {"k": 2.0}, {"k": 1.0}, lambda graph, x: plain(graph, x) * graph.fact["k"])
value("a_dtype", torch.float32, torch.float64, lambda graph, x: plain(graph, x.to(graph.fact).float()))
value("a_shape", (-1, 4), (-1, 2, 4), lambda graph, x: graph.first(x.reshape(graph.fact)).sum())
value("a_column", 0, 1, lambda graph, x: graph.first(x)[:, graph.fact].sum())
value("an_sbp", S0, B, lambda graph, x: graph.first(x.to_global(sbp=graph.fact)).sum())
value("a_detach", False, True, without_gradient)
value("a_no_grad", False, True, in_no_grad)
value("a_filled_tensor", 1.0, 2.0, filled)
value("another_layer", True, False, two_losses)
value("an_inference", 2.0, 3.0, lambda graph, x: graph.first(x).sum() * graph.fact, optimizer=None)
value(
    "an_unused_sum",
    0,
    1,
    lambda graph, x: [graph.first(x).sum(), x.sum()][0] if graph.fact else plain(graph, x),
)


def changed(name, change, restore, body=plain, first=False, **options):
    """Add a program in which `change(graph)` runs on one rank, and `restore(graph)` afterwards on all."""

    def calls(p):
        graph = Step(p, body, **options)
        yield None if first else (graph, p.split)
        if p.way == "other":
            change(graph)
        yield graph, p.split
        restore(graph)
        yield graph, p.split

    calls.__name__ = name
    differs()(calls)


def option(key, good, other, optimizer=flow.optim.SGD, options=None):
    """Add a program in which an option of an optimizer differs on one rank."""
    name = f"option_{key}_of_{optimizer.__name__}"
    put = lambda new: lambda graph: graph.optimizer.param_groups[0].update({key: new})
    changed(name, put(other), put(good), optimizer=optimizer, options=options)


option("lr", 0.1, 0.2)
option("lr", 0.1, 0.1000001, flow.optim.AdamW)
option("weight_decay", 0.0, 0.01)
option("momentum", 0.9, 0.8, options={"momentum": 0.9})
option("nesterov", False, True, options={"momentum": 0.9})
option("betas", (0.9, 0.999), (0.8, 0.999), flow.optim.Adam)
option("eps", 1e-8, 1e-6, flow.optim.AdamW)
option("weight_decay", 0.01, 0.1, flow.optim.AdamW, {"weight_decay": 0.01})


def first_or_not(frozen):
    return lambda graph: graph.first.weight.requires_grad_(not frozen)


changed("a_frozen_parameter", first_or_not(True), first_or_not(False))
changed("a_frozen_parameter_at_first", first_or_not(True), first_or_not(False), first=True)
changed(
    "an_evaluated_layer",
    lambda g: g.drop.eval(),
    lambda g: g.drop.train(),
    body=lambda g, x: g.drop(plain(g, x)),
    drop=nn.Dropout(0.5),
)


def swap(graph):
    graph.order.reverse()


changed(
    "swapped_layers",
    swap,
    swap,
    body=lambda g, x: getattr(g, g.order[1])(getattr(g, g.order[0])(x).relu()).sum(),
    order=["first", "second"],
)


@differs()
def a_missing_bias(p):
    graph = Step(p, plain)
    bias = graph.second._origin.bias
    if p.way == "other":
        graph.second._origin.bias = None
    yield None
    yield graph, p.split
    graph.second._origin.bias = bias
    yield graph, p.split


@differs()
def a_tied_weight(p):
    graph = Step(p, plain, optimizer=None)
    weight = graph.second._origin.weight
    if p.way == "other":
        graph.second._origin.weight = graph.first._origin.weight
    yield None
    yield graph, p.split
    graph.second._origin.weight = weight
    yield graph, p.split


@differs()
def another_slope(p):
    leaky = nn.LeakyReLU(0.1)
    graph = Step(p, lambda g, x: leaky(g.first(x)).sum())
    yield graph, p.split
    leaky.negative_slope = p.choose(0.1, None, 0.2)
    yield graph, p.split
    leaky.negative_slope = 0.1
    yield graph, p.split


@differs()
def a_closure(p):
    cell = types.SimpleNamespace(k=2.0)
    graph = Step(p, lambda g, x: plain(g, x) * cell.k)
    yield graph, p.split
    cell.k = p.choose(2.0, None, 4.0)
    yield graph, p.split
    cell.k = 2.0
    yield graph, p.split


def at_first(name, **differences):
    """Add a program whose graph is made otherwise on one rank."""

    def calls(p):
        yield None
        yield Step(p, plain, **p.choose({}, None, differences)), p.split
        yield Step(p, plain), p.split

    calls.__name__ = name
    differs()(calls)


at_first("another_optimizer", optimizer=flow.optim.Adam)
at_first("no_optimizer", optimizer=None)
at_first("amp_on_one_rank", configure=lambda config: config.enable_amp(True))
at_first("zero_on_one_rank", configure=lambda config: config.enable_zero(True, shard_min_size=1))
at_first("accumulation_on_one_rank", configure=lambda config: config.set_gradient_accumulation_steps(2))


def argument(name, good, other, known, body=plain, **options):
    """Add a program in which one rank passes other arguments. `known`: the ranks have seen both."""

    def calls(p):
        graph = Step(p, body, **options)
        usual, unusual = good(p), other(p)
        if known:
            call(graph, *unusual)
        yield graph, *usual
        yield graph, *p.choose(usual, None, unusual)
        yield graph, *usual

    calls.__name__ = name
    differs()(calls)


def rows(p, count):
    return torch.ones(count, 4).to_global(p.ranks, S0)


argument("a_size_seen_before", lambda p: (rows(p, 2),), lambda p: (rows(p, 3),), True)
argument("a_new_size", lambda p: (rows(p, 2),), lambda p: (rows(p, 3),), False)
argument("the_sbp_of_an_argument", lambda p: (p.same,), lambda p: (p.same.to_global(sbp=S1),), False)
argument("the_sbp_seen_before", lambda p: (p.same,), lambda p: (p.same.to_global(sbp=S0),), True)
argument(
    "the_dtype_of_an_argument",
    lambda p: (p.same,),
    lambda p: (p.same.double(),),
    False,
    lambda g, x: plain(g, x.float()),
)
argument(
    "a_flag",
    lambda p: (p.same, True),
    lambda p: (p.same, False),
    True,
    lambda g, x, flag: plain(g, x.abs() if flag else x),
)
argument(
    "a_number_among_arguments",
    lambda p: (p.same, 2.0),
    lambda p: (p.same, 3.0),
    False,
    lambda g, x, k: plain(g, x) * k,
)
argument("a_local_argument", lambda p: (p.same,), lambda p: (torch.ones(4, 4),), False)


@differs()
def another_graph(p):
    graphs = Step(p, plain), Step(p, plain)
    yield graphs[0], p.split
    yield p.choose(graphs[0], None, graphs[1]), p.split
    yield graphs[0], p.split


@differs()
def a_rate_under_a_schedule(p):
    schedule = lambda optimizer: flow.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    graph = Step(p, plain, schedule=schedule)
    yield graph, p.split
    rate = graph.optimizer.param_groups[0]["lr"]
    graph.optimizer.param_groups[0]["lr"] = p.choose(rate, None, 2 * rate)
    yield graph, p.split
    graph.optimizer.param_groups[0]["lr"] = rate
    yield graph, p.split


@differs()
def an_error_in_a_later_build(p):
    def body(graph, x):
        if graph.fact == 2:
            raise UserError("build() fails on one rank")
        return plain(graph, x) * graph.fact

    graph = Step(p, body, fact=1)
    yield graph, p.split
    graph.fact = p.choose(3, None, 2)
    yield graph, p.split
    graph.fact = 1
    yield graph, p.split


@differs("load_state_dict")
def a_state_of_another_shape(p):
    graph = Step(p, plain)
    state = graph.state_dict()
    if p.way == "other":
        state["first"]["weight"] = torch.ones(2, 2)
    yield None
    yield ((lambda: graph.load_state_dict(state)),)
    yield graph, p.split


@differs("load_state_dict")
def a_state_that_is_none(p):
    graph = Step(p, plain)
    yield None
    yield ((lambda: graph.load_state_dict(p.choose(graph.state_dict(), None, None))),)
    yield graph, p.split


@differs()
def a_loaded_rate(p):
    graph, state = Step(p, plain), Step(p, plain).state_dict()
    if p.way == "other":
        graph.optimizer.param_groups[0]["lr"] = 0.3
        state = graph.state_dict()
    graph.load_state_dict(state)
    yield None
    yield graph, p.split
    graph.optimizer.param_groups[0]["lr"] = 0.1
    yield graph, p.split


class Parallel(nn.Graph):
    """A data parallel step of local tensors."""

    def __init__(self, layer):
        super().__init__()
        self.layer = nn.parallel.DistributedDataParallel(layer)
        self.optimizer = flow.optim.SGD(layer.parameters(), lr=0.1)
        self.add_optimizer(self.optimizer)

    def build(self, x):
        loss = self.layer(x).sum()
        loss.backward()
        return loss


@differs()
def the_rate_of_data_parallel(p):
    graph = Parallel(nn.Linear(4, 2))
    yield graph, p.local
    graph.optimizer.param_groups[0]["lr"] = p.choose(0.1, None, 0.2)
    yield graph, p.local
    graph.optimizer.param_groups[0]["lr"] = 0.1
    yield graph, p.local


@differs()
def a_frozen_parameter_of_data_parallel(p):
    graph = Parallel(nn.Linear(4, 2))
    bias = graph.layer._origin.bias
    yield graph, p.local
    bias.requires_grad_(p.way != "other")
    yield graph, p.local
    bias.requires_grad_(True)
    yield graph, p.local


@differs(apart=True)
def an_error_in_the_run(p):
    """The others wait for data of the rank that failed, so the ranks are out of step."""
    table = torch.zeros(4, 4)

    def body(graph, x, index):
        return plain(graph, x + table[index].sum())

    graph = Step(p, body)
    good = torch.tensor([0, 1])
    yield graph, p.split, good
    yield graph, p.split, p.choose(good, None, torch.tensor([0, 9]))
    yield None
