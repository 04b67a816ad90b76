"""ZeRO stage 3 on several ranks.

python -m oneflow.distributed.launch --nproc_per_node N zero_stage_3.py NAME ...
"""

import copy
import os
import sys
import tempfile
import traceback
from unittest import mock

import numpy as np
from checks import ALL, RANK, S0, S1, WORLD, B

import oneflow as flow
from oneflow import nn
from oneflow._graph import eager_calls
from oneflow._graph.program.passes import bucket_gathers

STEPS, WORDS, WIDTH = 20, 12, 8


class Model(nn.Module):
    """Tied weights, a frozen layer, sizes that the ranks do not divide, a scalar, and small parameters."""

    def __init__(self):
        super().__init__()
        flow.manual_seed(0)
        self.table = nn.Embedding(WORDS, WIDTH)
        self.uneven, self.back = nn.Linear(WIDTH, 5), nn.Linear(5, WIDTH)
        self.odd = nn.Parameter(flow.randn(5, 7) / 4)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 1)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.norm = nn.LayerNorm(WIDTH)
        self.scale = nn.Parameter(flow.tensor(1.5))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        x = self.table(ids)
        x = self.back(flow.relu(self.uneven(x)) @ self.odd @ self.odd.t())
        x = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm(self.frozen(x)) * self.scale)


OPTIMIZERS = {
    "sgd": lambda groups: flow.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda groups: flow.optim.AdamW(groups, lr=0.01, weight_decay=0.1),
    "lamb": lambda groups: flow.optim.LAMB(groups, lr=0.01),
}


def batches(steps=STEPS):
    flow.manual_seed(1)
    return [(flow.randint(0, WORDS, (8, 3)), flow.randint(0, WORDS, (8, 3))) for _ in range(steps)]


def placed(t):
    return t.to_global(ALL, B).to_global(sbp=S0)


class Step(nn.Graph):
    """One training step; `options` are those of `graph()`."""

    def __init__(self, model, optimizer, zero=3, accumulation=1, recomputes=False, amp=False, scaler=None):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)
        if recomputes:
            self.model.to(nn.graph.GraphModule).activation_checkpointing = True
        if accumulation > 1:
            self.config.set_gradient_accumulation_steps(accumulation)
        if amp:
            self.config.enable_amp(True, dtype=flow.bfloat16)
        if scaler is not None:
            self.set_grad_scaler(scaler)
        if zero:
            self.config.enable_zero(True, stage=zero, shard_min_size=4)

    def build(self, ids, targets):
        loss = nn.functional.cross_entropy(self.model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        return loss


def graph(is_global, name="adamw", clip=None, make=Model, scaler=lambda: None, **options):
    """Return the graph of a model, on one rank or on all."""
    model = make() if options.get("amp") else make().double()
    if is_global:
        model = model.to_global(ALL, B)
    params = [p for p in model.parameters() if p.requires_grad]
    group = {"params": params}
    if clip is not None:
        group.update(clip_grad_max_norm=clip, clip_grad_norm_type=2.0)
    if not is_global:
        options["zero"] = 0
    return Step(model, OPTIMIZERS[name]([group]), scaler=scaler(), **options)


def losses(step, is_global, data):
    return [step(*map(placed, d) if is_global else d).numpy().mean() for d in data]


def new_folder():
    """A folder of rank 0 that every rank knows."""
    flow.comm.barrier()
    box = [tempfile.mkdtemp() if RANK == 0 else None]
    flow.distributed.broadcast_object_list(box, 0)
    return box[0]


def module_of(step):
    return step.model.to(nn.Module)


def stored(model):
    return {name: p for name, p in model.named_parameters() if p.sbp != (B,)}


def equals_one_process(tolerance=1e-6, data=None, **options):
    data = batches() if data is None else data
    alone, together = graph(False, **options), graph(True, **options)
    expected, got = losses(alone, False, data), losses(together, True, data)
    assert np.allclose(got, expected, rtol=tolerance, atol=0), (options, got, expected)
    model, single = module_of(together), dict(module_of(alone).named_parameters())
    for name, p in model.named_parameters():
        q = single[name].detach().numpy()
        assert np.allclose(p.numpy(), q, rtol=10 * tolerance, atol=10 * tolerance), (options, name)
    return together


def shards_have_the_rows(state, model):
    """Whether the state of the optimizer is in the shards of its parameters."""
    for p in stored(model).values():
        for value in state[p].values():
            if value.dim():
                assert value.sbp == p.sbp and value.to_local().shape == p.to_local().shape


def shards_are_stored():
    step = equals_one_process()
    model = module_of(step)
    assert step.program is not None, "the graph ran in eager mode"
    whole = {"scale"} | {name for name, p in model.named_parameters() if p.numel() < 4 * WORLD}
    assert set(stored(model)) == {name for name, _ in model.named_parameters()} - whole
    for name, p in stored(model).items():
        local = p.to_local()
        assert local.untyped_storage().nbytes() == local.numel() * local.element_size(), name
        rows = [d for d in range(p.dim()) if p.shape[d] % WORLD == 0]
        assert p.sbp == (flow.sbp.split(rows[0] if rows else 0),), (name, p.sbp)
        if rows:
            assert local.numel() == p.numel() // WORLD, name
    assert model.head.weight is model.table.weight


def every_composition():
    for name in OPTIMIZERS:
        equals_one_process(name=name, data=batches(6))
    equals_one_process(clip=0.1)
    equals_one_process(accumulation=2)
    equals_one_process(recomputes=True)
    equals_one_process(
        accumulation=2, recomputes=True, clip=0.1, scaler=lambda: flow.amp.GradScaler(init_scale=64.0)
    )
    equals_one_process(tolerance=0.05, amp=True, data=batches(6))


def collectives(step):
    """The collectives of a graph's program in order, which must be the same on every rank."""
    names = []
    for node in step.program.graph.nodes:
        if "c10d" in str(node.target) and "wait" not in str(node.target):
            sizes = len(node.args[0]) if isinstance(node.args[0], (list, tuple)) else 1
            names.append((str(node.target), sizes))
    on_all_ranks = [None] * WORLD
    flow.distributed.all_gather_object(on_all_ranks, names)
    assert all(other == names for other in on_all_ranks), on_all_ranks
    return names


def buckets():
    """A program has fewer gathers if larger buckets are allowed, and the same results."""
    for options in ({"recomputes": True}, {"amp": True}):
        counts, results = [], []
        for size in (0, 400, 2**20):
            with mock.patch.object(bucket_gathers, "BUCKET_BYTES", size):
                step = graph(True, **options)
                results.append(losses(step, True, batches(2)))
                counts.append(sum("gather" in name for name, _ in collectives(step)))
        assert results[0] == results[1] == results[2], results
        assert counts[0] >= counts[1] >= counts[2] < counts[0], counts


def a_grid():
    """Data parallel along the first dimension of a grid, tensor parallel along the second one."""
    grid = flow.placement("cpu", [[0, 1], [2, 3]])

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            flow.manual_seed(0)
            self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.second(flow.relu(self.first(x)))

    class Regression(Step):
        def build(self, x):
            loss = self.model(x).pow(2).mean()
            loss.backward()
            return loss

    def losses_of(is_global):
        model = Pair().double()
        if is_global:
            model = model.to_global(grid, [B, B])
            for layer, rule in ((model.first, S0), (model.second, S1)):
                layer.weight = nn.Parameter(layer.weight.detach().to_global(sbp=[B, rule]))
            model.first.bias = nn.Parameter(model.first.bias.detach().to_global(sbp=[B, S0]))
        step = Regression(model, flow.optim.AdamW(model.parameters(), lr=0.01), zero=3 * is_global)
        x = flow.arange(24.0, dtype=flow.float64).reshape(4, 6) / 24
        x = x.to_global(grid, [B, B]).to_global(sbp=[S0, B]) if is_global else x
        return [step(x).numpy() for _ in range(STEPS)], model

    (expected, _), (got, model) = losses_of(False), losses_of(True)
    assert np.allclose(got, expected, rtol=1e-9), (got, expected)
    rules = {name: p.sbp for name, p in model.named_parameters()}
    assert rules == {
        "first.weight": (S1, S0),
        "first.bias": (B, S0),
        "second.weight": (S0, S1),
        "second.bias": (B, B),
    }, rules


def a_compiled_step():
    """flow.compile_step, whose step updates the parameters itself."""
    results = []
    for is_global in (False, True):
        model = Model().double()
        model = model.to_global(ALL, B) if is_global else model
        optimizer = flow.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)

        @flow.compile_step
        def step(ids, targets):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            return loss

        if is_global:
            step.graph.config.enable_zero(True, stage=3, shard_min_size=4)
        results.append(losses(step, is_global, batches(6)))
    assert np.allclose(*results, rtol=1e-9), results
    assert stored(model)
    shards_have_the_rows(optimizer.state, model)


def with_inductor():
    alone, together = graph(False), graph(True)
    together.config.set_backend("inductor")
    assert np.allclose(losses(together, True, batches(4)), losses(alone, False, batches(4)), rtol=1e-6)
    assert stored(module_of(together))


def in_eager_mode():
    with mock.patch.object(eager_calls, "why_unobserved", return_value="this test has no frame hook"):
        for options in ({}, {"clip": 0.1, "accumulation": 2}, {"recomputes": True}):
            step = equals_one_process(**options)
            assert step._engine.program is None and stored(module_of(step))


def values_between_calls():
    """A program sees full values outside of a call, and shards if it asks for them."""
    alone, together = graph(False), graph(True)
    losses(alone, False, batches(2)), losses(together, True, batches(2))
    one, model = module_of(alone), module_of(together)
    (ids, _), *_ = batches(1)
    assert np.allclose(model(placed(ids)).numpy(), one(ids).detach().numpy(), rtol=1e-9)
    assert np.allclose(model.table.weight.numpy(), one.table.weight.detach().numpy(), rtol=1e-9)
    assert np.allclose(model.table.weight.to_global(sbp=B).to_local().detach(), one.table.weight.detach())
    last = model.table.weight.numpy()[-1, -1]
    assert f"{last:.4f}" in str(model.table.weight)
    assert model.back.weight.shape == (WIDTH, 5) and model.table.weight.to_local().shape == (
        WORDS // WORLD,
        WIDTH,
    )
    for name, value in model.state_dict().items():
        assert value.sbp == model.get_parameter(name).sbp
        assert np.allclose(value.numpy(), one.state_dict()[name].numpy(), rtol=1e-9), name
    with flow.no_grad():
        for m in (one, model):
            m.table.weight.mul_(0.5)
            m.back.bias.zero_()
    given = {name: value * 1.5 for name, value in one.state_dict().items()}
    one.load_state_dict(given)
    model.load_state_dict({name: value.to_global(ALL, B) for name, value in given.items()})
    assert stored(model) and np.allclose(
        losses(together, True, batches(2)), losses(alone, False, batches(2)), rtol=1e-9
    )


def training_in_eager_mode_goes_on():
    """After the graph, a loop of eager mode trains on the shards."""
    models = []
    for is_global in (False, True):
        step = graph(is_global)
        losses(step, is_global, batches(2))
        model = module_of(step)
        optimizer = flow.optim.SGD(
            [p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.01
        )
        for ids, targets in batches(3):
            ids, targets = (placed(t) if is_global else t for t in (ids, targets))
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(ids).flatten(0, 1), targets.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        models.append(model)
    one, model = models
    for (name, p), q in zip(model.named_parameters(), one.parameters()):
        assert np.allclose(p.numpy(), q.detach().numpy(), rtol=1e-9), name
        assert p.grad is None or p.grad.sbp == p.sbp, name


def checkpoints():
    """The state after two steps, in memory, a file and a folder, for ZeRO 3, ZeRO 1 and one process."""
    data, folder = batches(6), new_folder()
    step = graph(True)
    losses(step, True, data[:2])
    flow.save(step.state_dict(), os.path.join(folder, "file"), global_dst_rank=0)
    flow.save(step.state_dict(), os.path.join(folder, "sharded"), layout="sharded")
    expected = losses(step, True, data[2:])
    flow.comm.barrier()
    states = (
        flow.load(os.path.join(folder, "file"), global_src_rank=0),
        flow.load(os.path.join(folder, "sharded")),
    )
    for state in states:
        for zero in (3, 1):
            resumed = graph(True, zero=zero)
            resumed.load_state_dict(state)
            assert np.allclose(losses(resumed, True, data[2:]), expected, rtol=1e-9), zero
            if stored(module_of(resumed)):
                shards_have_the_rows(resumed._opts[0][0].state, module_of(resumed))
    alone = graph(False)
    alone.load_state_dict(flow.load(os.path.join(folder, "sharded"), map_location="cpu"))
    assert np.allclose(losses(alone, False, data[2:]), expected, rtol=1e-9)


def state_of_a_replicated_optimizer():
    """An optimizer loads a replicated state before the graph shards it, or between calls."""
    data = batches(6)
    usual = graph(True, zero=0)
    losses(usual, True, data[:2])
    state = copy.deepcopy(usual._opts[0][0].state_dict())
    weights = copy.deepcopy(module_of(usual).state_dict())
    expected = losses(usual, True, data[2:])
    for calls_before in (0, 1):
        step = graph(True)
        losses(step, True, data[:calls_before])
        module_of(step).load_state_dict(weights)
        step._opts[0][0].load_state_dict(copy.deepcopy(state))
        assert np.allclose(losses(step, True, data[2:]), expected, rtol=1e-9), calls_before
        shards_have_the_rows(step._opts[0][0].state, module_of(step))


def status(key):
    """A size in bytes that the system reports of this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024


def bytes_of_a_rank():
    """Between calls a rank has its share of parameters and state; in a call, four layers more."""
    width, layers = 1024, 8

    def make():
        flow.manual_seed(0)
        return nn.Sequential(
            *(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU()))
        )

    class Regression(Step):
        def build(self, x):
            loss = self.model(x).pow(2).mean()
            loss.backward()
            return loss

    model = make().to_global(ALL, B)
    full = sum(p.numel() * p.element_size() for p in model.parameters())
    optimizer = flow.optim.AdamW(model.parameters(), lr=1e-4)
    step = Regression(model, optimizer)
    x = placed(flow.randn(4, width))
    for _ in range(3):
        step(x)
    tensors = [
        *model.parameters(),
        *(v for state in optimizer.state.values() for v in state.values() if v.dim()),
    ]
    between = sum(t.to_local().untyped_storage().nbytes() for t in tensors)
    assert all(p.grad is None for p in model.parameters())
    assert between <= 3 * full * (1 / WORLD + 0.05), (between, full)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak begins anew
    before = status("VmRSS")
    step(x).numpy()
    peak, layer = status("VmHWM") - before, 4 * width * width
    print(
        f"rank {RANK} of {WORLD}: {between / full:.3f} between calls, {peak / full:.3f} more in a call",
        flush=True,
    )
    assert peak <= full / WORLD + 4.5 * layer, (peak, full, layer)


def options_differ():
    """An option of one rank alone is an error of every rank, before a parameter changes."""
    for options in ({"zero": 2}, {"zero": 0}, {"zero": 3, "least": 20}):
        step = graph(True, zero=3)
        if RANK == 1:
            step.config.enable_zero(
                bool(options["zero"]), stage=options["zero"] or 3, shard_min_size=options.get("least", 4)
            )
        ids, targets = batches(1)[0]
        try:
            step(placed(ids), placed(targets))
        except Exception as error:
            assert "rank" in str(error), error
        else:
            raise AssertionError("the ranks had different options")
        assert not stored(module_of(step)), options


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            globals()[name]()
        except BaseException:
            print(f"rank {RANK}: {name}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            sys.exit(1)
