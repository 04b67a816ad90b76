"""Sharded checkpoints of several ranks: `checkpoints.py FOLDER CHECK:NAME:RANKS ...`, a program for
test_checkpoints.py. NAME is a checkpoint in FOLDER, and RANKS the number of ranks that saved it.
"""

import json
import os
import sys

import numpy as np
import torch
from checks import ALL, RANK, S0, S1, WORLD, B, P, is_
from checks_of_training import OPTIMIZERS, Step, batches, network

import oneflow as flow

SHAPES = {"even": (8, 4), "uneven": (7, 5), "short": (1, 3), "long": (300, 40), "cube": (4, 6, 5)}


def full(name, dtype=torch.float32):
    """The same values in every process."""
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(sorted(SHAPES).index(name))
    return torch.randn(shape, generator=generator).to(dtype)


def sharded(value, placement, sbp):
    """A global tensor whose values every rank has."""
    rules = [B] * placement.ranks.ndim
    return value.to_global(placement, rules).to_global(sbp=sbp)


def grid():
    return flow.placement("cpu", [[0, 1], [2, 3]]) if WORLD == 4 else None


def state():
    """Global tensors of each SBP, local tensors, and plain values."""
    rules = {"S0": S0, "S1": S1, "B": B, "P": P}
    out = {}
    for name in SHAPES:
        for title, rule in rules.items():
            out[f"{name}-{title}"] = sharded(full(name), ALL, rule)
        if grid() is not None:
            for a, b in ((S0, S1), (S0, S0), (B, S1), (S1, P)):
                out[f"{name}-grid-{a}-{b}"] = sharded(full(name), grid(), [a, b])
    out["half"] = sharded(full("uneven", torch.bfloat16), ALL, S0)
    out["scalar"] = torch.tensor(2.5).to_global(ALL, B)
    out["first"] = sharded(full("uneven"), flow.placement("cpu", [0]), B)
    out["tied"] = out["even-S0"]
    tensors = {"same": torch.arange(5), "own": torch.arange(3) + RANK, "view": None}
    tensors["view"] = tensors["same"][1:3]
    return {"global": out, "local": tensors, "step": 3, "rank": RANK, "pair": (1, [RANK, "x"])}


def expected(name):
    if name == "scalar":
        return torch.tensor(2.5)
    dtype = torch.bfloat16 if name == "half" else torch.float32
    shape = {"half": "uneven", "first": "uneven", "tied": "even"}.get(name, name.partition("-")[0])
    return full(shape, dtype)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert torch.equal(a, b), (a, b)


def save(folder):
    assert flow.save(state(), folder, layout="sharded") is None
    index = json.loads(open(os.path.join(folder, "checkpoint.json")).read())
    assert len(index["files"]) == WORLD
    # each value stands in the files once, spread evenly
    sizes = [size for _, size in index["files"]]
    assert max(sizes) < 1.6 * min(sizes), sizes
    assert ("local.own@1" in index["tensors"]) == (WORLD > 1) and "local.same@1" not in index["tensors"]


def check_locals(back, saved_by):
    source = 0 if saved_by <= RANK else RANK
    assert back["step"] == 3 and back["rank"] == source and back["pair"] == (1, [source, "x"])
    same(back["local"]["own"], torch.arange(3) + source)
    same(back["local"]["same"], torch.arange(5))
    back["local"]["same"].add_(1)
    same(back["local"]["view"], torch.arange(1, 3) + 1)


def load_as_saved(folder, saved_by):
    back = flow.load(folder)
    for name, tensor in back["global"].items():
        same(tensor.full_tensor() if WORLD > 1 else tensor, expected(name))
        if WORLD > 1 and saved_by == WORLD:
            assert tensor.placement == state()["global"][name].placement, name
    if WORLD > 1:
        assert back["global"]["uneven-S0"].sbp == (S0,) and back["global"]["uneven-P"].sbp == (B,)
        assert back["global"]["tied"] is back["global"]["even-S0"]
    check_locals(back, saved_by)


def load_into(folder, saved_by):
    """Read into tensors of other SBPs and placements; each rank reads its part."""
    saved = json.loads(open(os.path.join(folder, "checkpoint.json")).read())["tensors"]
    names = [n.removeprefix("global.") for n in saved if n.startswith("global.")]
    rules = (S0, S1, B, P)
    targets = {}
    for i, name in enumerate(names):
        value = torch.zeros_like(expected(name))
        rule = rules[i % 4] if value.dim() else B
        targets[name] = sharded(value, ALL, rule) if i % 5 else value
        if i % 5 == 4 and WORLD == 4:
            targets[name] = sharded(value, grid(), [rules[i % 3], rules[i % 2]] if value.dim() else [B, B])
    into = {"global": targets, "local": {"same": torch.zeros(5, dtype=torch.int64)}}
    back = flow.load(folder, into=into)
    for name, tensor in targets.items():
        assert back["global"][name] is tensor
        same(
            tensor.full_tensor() if tensor.is_global and WORLD > 1 else tensor.as_subclass(torch.Tensor),
            expected(name),
        )
    same(into["local"]["same"], torch.arange(5))


def load_on_a_placement(folder, saved_by):
    for place in (flow.placement("cpu", [WORLD - 1]), ALL):
        back = flow.load(folder, map_location=place)
        for name, tensor in back["global"].items():
            assert tensor.placement == place
            same(tensor.full_tensor(), expected(name))
        assert back["local"]["same"].sbp == (B,) and not back["local"]["own"].is_global
    plain = flow.load(folder, map_location="cpu")
    same(plain["global"]["cube-S1"], expected("cube-S1"))
    alone = flow.load(folder, global_src_rank=1)
    assert alone["global"]["cube-S1"].placement == flow.placement("cpu", [1])
    is_(alone["global"]["cube-S1"], expected("cube-S1").numpy(), B)


def grids_of_other_sizes(folder, saved_by):
    """A grid of ranks is not guessed if the number of ranks differs; map_location names one."""
    if saved_by == WORLD:
        assert flow.load(folder)["global"]["cube-grid-" + f"{S0}-{S1}"].placement == grid()
        return
    try:
        flow.load(folder)
    except ValueError as error:
        assert "map_location=flow.placement" in str(error), error
    else:
        raise AssertionError("there is no grid of two ranks")
    place = flow.placement("cpu", [[0], [1]])
    back = flow.load(folder, map_location=place)["global"]["cube-grid-" + f"{S0}-{S1}"]
    assert back.placement == place and back.sbp == (S0, S1)
    same(back.full_tensor(), expected("cube"))


def different_objects(folder):
    """Ranks that save different global tensors, or save while others do not, raise together."""
    mine = {"a": sharded(full("even"), ALL, S0), "b": sharded(full("even"), ALL, B)}
    mine = dict(reversed(mine.items())) if RANK else mine
    try:
        flow.save(mine, folder, layout="sharded")
    except RuntimeError as error:
        assert "the ranks save different objects" in str(error), error
    else:
        raise AssertionError("the ranks disagree")
    flow.comm.barrier()
    assert not os.path.exists(folder)
    try:
        flow.save({}, folder + str(RANK), layout="sharded")
    except RuntimeError as error:
        assert "the ranks disagree" in str(error), error
    else:
        raise AssertionError("the ranks named different folders")


def ranks_of_plain_values(folder):
    """Objects whose structures differ between the ranks, and values that are equal and of different types."""
    values = {
        0: {"a": [1, 2.0], "z": 0.0, "t": flow.ones(2)},
        1: {"a": (True,), "z": -0.0, "t": [flow.zeros(1)]},
    }
    flow.save({"v": values[RANK], "n": 1 if RANK else True}, folder, layout="sharded")
    back = flow.load(folder)
    assert repr(back) == repr({"v": values[RANK], "n": 1 if RANK else True}), back


def graph():
    model = network().to_global(ALL, B)
    out = Step(model, OPTIMIZERS["adamw"](model.parameters()))
    out.config.enable_zero(True, stage=2, shard_min_size=8)
    return out


def losses_of(step, start, stop):
    out = []
    for x, y in list(batches())[start:stop]:
        out.append(step(x.to_global(ALL, B), y.to_global(ALL, B)).item())
    return out


def train_and_save(folder):
    step = graph()
    losses_of(step, 0, 1)
    flow.save(step.state_dict(), folder, layout="sharded", asynchronous=True).wait()
    rest = losses_of(step, 1, None)
    if RANK == 0:
        open(folder + ".losses", "w").write(json.dumps(rest))
    index = json.loads(open(os.path.join(folder, "checkpoint.json")).read())
    assert any(e.get("sbp") == ["S(0)"] for e in index["tensors"].values()) or WORLD == 1


def resume(folder, saved_by):
    step = graph()
    state = flow.load(folder)
    step.load_state_dict(state)
    assert np.allclose(losses_of(step, 1, None), json.loads(open(folder + ".losses").read()), rtol=1e-5)


def failing_save(folder):
    """An error on one rank is raised on every rank, and the former checkpoint stays."""
    flow.save({"x": sharded(full("long"), ALL, S0)}, folder, layout="sharded")
    for asynchronous in (False, True):
        for obj, wrong in (
            ({"x": object() if RANK == 1 else 3}, TypeError),
            (
                {"x": sharded(full("long"), ALL, S0), "y": torch.ones(1).to_sparse() if RANK else 1},
                NotImplementedError,
            ),
        ):
            try:
                flow.save(obj, folder, layout="sharded", asynchronous=asynchronous)
            except wrong as error:
                assert RANK == 1 or "rank 1" in str(error), error
            else:
                raise AssertionError("one rank cannot save its object")
        from oneflow._files.sharded import shard_files

        write = shard_files.write
        if RANK == 1:

            def full_disk(path, parts):
                write(path, parts[:0])
                raise OSError(28, "No space left on device", path)

            shard_files.write = full_disk
        try:
            pending = flow.save(
                {"x": sharded(full("cube"), ALL, S0)}, folder, layout="sharded", asynchronous=asynchronous
            )
            pending.wait()
        except OSError as error:
            assert "No space left" in str(error) and (RANK == 1 or "rank 1" in str(error)), error
        else:
            raise AssertionError("rank 1 had no space")
        shard_files.write = write
        same(flow.load(folder)["x"].full_tensor(), full("long"))
    flow.comm.barrier()
    assert len(os.listdir(folder)) == WORLD + 1, os.listdir(folder)


def failing_load(folder):
    """A damaged file is an error on every rank, and no tensor of `into` changes."""
    flow.save(
        {"x": sharded(full("long"), ALL, S0), "y": sharded(full("cube"), ALL, S0)}, folder, layout="sharded"
    )
    last = sorted(n for n in os.listdir(folder) if n.startswith("rank-1-"))[0]
    path = os.path.join(folder, last)
    good = open(path, "rb").read()
    flow.comm.barrier()

    def refused(error_class, message, **new):
        into = {
            k: sharded(torch.zeros(SHAPES[n]), ALL, S0) for k, n in {"x": "long", "y": "cube", **new}.items()
        }
        try:
            flow.load(folder, into=into)
        except error_class as error:
            assert message in str(error), error
        else:
            raise AssertionError("the checkpoint does not fit")
        assert not any(t.numpy().any() for t in into.values())
        flow.comm.barrier()

    refused(ValueError, "Nothing was changed", x="even")
    refused(ValueError, "is not in the checkpoint", z="even")
    for damaged in (good[:-1], good[:-1] + bytes([good[-1] ^ 1]), b""):
        if RANK == 0:
            with open(path, "wb") as file:
                file.write(damaged)
        flow.comm.barrier()
        refused(flow.CheckpointError, last)
    if RANK == 0:
        os.unlink(path)
    flow.comm.barrier()
    refused(flow.CheckpointError, "missing")


def dtensors(folder):
    """DTensors of torch, and a folder of torch.distributed.checkpoint that is read without executing it."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import DeviceMesh, DTensor, Partial, Replicate, Shard, distribute_tensor

    sharded(full("even"), ALL, S0)  # starts the process group
    mesh = DeviceMesh("cpu", list(range(WORLD)))
    make = lambda name, p: distribute_tensor(full(name), mesh, [p])
    state = {
        "a": make("uneven", Shard(0)),
        "b": {"c": make("long", Replicate())},
        "step": 3,
        "d": [make("cube", Shard(1))],
    }
    partial = DTensor.from_local(full("even") * (RANK + 1), mesh, [Partial()])
    flow.save({"partial": partial}, folder + ".partial", layout="sharded")
    same(flow.load(folder + ".partial")["partial"].full_tensor(), full("even") * 3)
    flow.save(state, folder, layout="sharded")
    dcp.save(state, checkpoint_id=folder + ".dcp")
    flow.comm.barrier()
    same(flow.load(folder)["a"].full_tensor(), full("uneven"))
    own = flow.load(folder + ".dcp")
    same(own["a"], full("uneven")), same(own["d"][0], full("cube"))
    assert own["step"] == 3
    for path in (folder, folder + ".dcp"):
        into = {"a": sharded(torch.zeros(SHAPES["uneven"]), ALL, S1), "d": [make("cube", Shard(2)) * 0]}
        flow.load(path, into=into)
        same(into["a"].full_tensor(), full("uneven")), same(into["d"][0].full_tensor(), full("cube"))


if __name__ == "__main__":
    for step in sys.argv[2:]:
        check, folder, *saved_by = step.split(":")
        globals()[check](os.path.join(sys.argv[1], folder), *map(int, saved_by))
        flow.comm.barrier()
