"""Exchange files with the original OneFlow in both directions. ONEFLOW_ORACLE names an interpreter that can
import it (0.9.0 or newer).
"""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import oneflow as flow

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from files_util import assert_same_bits
from time_limits import seconds

ORACLE = os.environ.get("ONEFLOW_ORACLE", "")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        not ORACLE, reason="ONEFLOW_ORACLE (an interpreter that imports real OneFlow) is not set"
    ),
]
DTYPES = ["float32", "float64", "float16", "int8", "int32", "int64", "uint8", "bool"]


def _oracle(code, *args):
    done = subprocess.run(
        [ORACLE, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=seconds(120),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _object():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    opt = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 2)).sum().backward()
    opt.step()
    return {
        "net": net.state_dict(),
        "opt": opt.state_dict(),
        "epoch": 3,
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "dtypes": {d: torch.tensor([0, 1, 5]).to(getattr(torch, d)) for d in DTYPES},
        "shapes": [torch.tensor(2.5), torch.empty(0, 3)],
        "dtype": torch.float16,
        "size": torch.Size([2, 3]),
        "np": np.arange(3),
        "lst": [1, "x", None, (2.5, True)],
    }


DUMP = """
    import sys, pickle, numpy as np, oneflow as flow
    def plain(o):
        if isinstance(o, flow.Tensor):
            return ("tensor", type(o).__name__, str(o.dtype), tuple(o.shape), o.numpy().tobytes())
        if isinstance(o, dict):
            return {k: plain(v) for k, v in o.items()}
        if isinstance(o, (flow.Size, flow.dtype)):
            return str(o)
        if isinstance(o, (list, tuple)):
            return [plain(v) for v in o]
        return o.tolist() if isinstance(o, np.ndarray) else o
    if sys.argv[2] == "folder":
        o = flow.load(sys.argv[1])
    else:
        o = pickle.load(open(sys.argv[1], "rb"))["data"]
    sys.stdout.write(repr(plain(o)))
"""


def _plain(o):
    if isinstance(o, torch.Tensor):
        name = "Parameter" if isinstance(o, torch.nn.Parameter) else "Tensor"
        return (
            "tensor",
            name,
            str(o.dtype).replace("torch", "oneflow"),
            tuple(o.shape),
            o.detach().numpy().tobytes(),
        )
    if isinstance(o, dict):
        return {k: _plain(v) for k, v in o.items()}
    if isinstance(o, (torch.Size, torch.dtype)):
        return str(o).replace("torch", "oneflow")
    if isinstance(o, (list, tuple)):
        return [_plain(v) for v in o]
    return o.tolist() if isinstance(o, np.ndarray) else o


@pytest.mark.parametrize("layout", ["folder", "pickle"])
def test_oneflow_opens_what_we_write(tmp_path, layout):
    obj = _object()
    flow.save(obj, tmp_path / "c", layout=layout)
    assert _oracle(DUMP, tmp_path / "c", layout) == repr(_plain(obj))


def test_we_open_what_oneflow_writes(tmp_path):
    """The object of `_object`, made by OneFlow, saved by it, loaded here, saved here, and opened by
    it again.
    """
    obj = _object()
    flow.save(obj, tmp_path / "a", save_as_external_data=True)
    _oracle(
        "import sys, oneflow as flow; flow.save(flow.load(sys.argv[1]), sys.argv[2])",
        tmp_path / "a",
        tmp_path / "b",
    )
    assert_same_bits(flow.load(tmp_path / "b"), obj)
    flow.save(flow.load(tmp_path / "b"), tmp_path / "c", save_as_external_data=True)
    assert _oracle(DUMP, tmp_path / "c", "folder") == repr(_plain(obj))


def test_saving_over_a_folder_of_oneflows(tmp_path):
    _oracle("import sys, oneflow as flow; flow.save({'a': flow.ones(3)}, sys.argv[1])", tmp_path / "a")
    flow.save({"a": torch.full((2,), 2.0)}, tmp_path / "a")
    assert _oracle(DUMP, tmp_path / "a", "folder") == repr(_plain({"a": torch.full((2,), 2.0)}))
    assert flow.load(tmp_path / "a")["a"].tolist() == [2, 2]


def test_models_train_on_after_a_round_trip(tmp_path):
    """OneFlow loads our state into its own layers, steps, and gives it back; ours loads that."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    flow.save(net.state_dict(), tmp_path / "a", save_as_external_data=True)
    _oracle(
        """
        import sys, oneflow as flow
        net = flow.nn.Sequential(flow.nn.Linear(2, 3), flow.nn.BatchNorm1d(3))
        net.load_state_dict(flow.load(sys.argv[1]))
        net(flow.ones(4, 2)).sum().backward()
        flow.save(net.state_dict(), sys.argv[2])
    """,
        tmp_path / "a",
        tmp_path / "b",
    )
    net(torch.ones(4, 2)).sum().backward()
    back = flow.load(tmp_path / "b")
    assert torch.equal(back["0.weight"].detach(), net[0].weight.detach())
    np.testing.assert_allclose(back["1.running_mean"], net[1].running_mean, rtol=1e-5, atol=1e-7)
    net.load_state_dict(back)


def test_oneflow_reads_the_onerec_files_we_write(tmp_path):
    path = str(tmp_path / "records")
    with flow.utils.data.OneRecWriter(path) as out:
        for i in range(6):
            out.write(
                {
                    "i": np.array([i]),
                    "text": "hello",
                    **{
                        d: np.full((2, i % 3 + 1), i, d)
                        for d in ("int8", "int32", "int64", "float32", "float64")
                    },
                }
            )
    theirs = _oracle(
        """
        import sys, oneflow as flow
        reader = flow.nn.OneRecReader([sys.argv[1]], 3, True, "instance", random_seed=5, shuffle_buffer_size=4)
        out = []
        for _ in range(4):
            batch = reader()
            out.append(flow.decode_onerec(batch, "i", flow.int64, (1,)).numpy().tolist())
            for dtype in "int8 int32 int64 float32 float64".split():
                out.append(flow.decode_onerec(batch, dtype, getattr(flow, dtype), (6, 1), reshape=(-1, 1), batch_padding=(6, 0)).numpy().tolist())
        print(out)
    """,  # noqa: E501
        path,
    )
    reader, ours = flow.nn.OneRecReader([path], 3, True, "instance", random_seed=5, shuffle_buffer_size=4), []
    for _ in range(4):
        batch = reader()
        ours.append(flow.decode_onerec(batch, "i", flow.int64, (1,)).tolist())
        for dtype in "int8 int32 int64 float32 float64".split():
            ours.append(
                flow.decode_onerec(
                    batch, dtype, getattr(flow, dtype), (6, 1), reshape=(-1, 1), batch_padding=(6, 0)
                ).tolist()
            )
    assert eval(theirs.strip().splitlines()[-1]) == ours
