"""The CUDA kernels against the plain functions on the CPU in float64, and against the CPU kernels' dropped elements. Those that need
no GPU to mean something also run on the library of cuda_on_cpu/ (see test_cuda_on_cpu.py)."""
import os

import pytest
import torch
from ops_table import OPS
from test_ops_kernels import listed, run, to

import oneflow
from oneflow._ops.custom import _ext, kernels

C = oneflow._C
EMULATED = "cuda_on_cpu" in os.environ.get("ONEFLOW_EXT_PATH", "")
DEVICE = "cpu" if EMULATED else "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not EMULATED and not torch.cuda.is_available(), reason="no CUDA device")]
compares_devices = pytest.mark.skipif(EMULATED, reason="a CUDA device and the CPU's kernels beside it")


def cuda(inputs):
    return [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in inputs]


@pytest.fixture(autouse=True)
def _as_on_cuda(monkeypatch):
    """On the emulation: half precision has kernels, the bias's gradient is a sum of its own."""
    if EMULATED:
        _ext.status()
        run = kernels.run
        monkeypatch.setitem(_ext.use.__kwdefaults__, "dtypes", _ext._FLOATS | {torch.float16})
        monkeypatch.setattr(run, "bias_gelu_backward_sums", lambda dy, x, b, axis: _with_sum(run.bias_gelu_backward(dy, x, b, axis), axis))
        monkeypatch.setattr(run, "bias_dropout_backward_sums", lambda dy, axis, p, seed: _with_sum(run.bias_dropout_backward(dy, p, seed), axis))


def _with_sum(dx, axis):
    return dx, kernels._bias_sum(dx, axis)[None]


@compares_devices
def test_library_has_cuda_kernels():
    assert _ext.status() == "loaded" and _ext._cuda()


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_no_farther_from_float64_than_torch(op, dtype):
    if dtype not in (*op.dtypes, *((torch.float16,) if torch.bfloat16 in op.dtypes else ())):
        pytest.skip(f"{op.name} has no {dtype} kernel")
    torch.manual_seed(0)
    for n in (1, 37, 130):
        inputs = op.make(dtype, n)
        found, torchs = run(op.call, op, cuda(inputs)), run(op.plain, op, cuda(inputs))
        exact = run(op.plain, op, to(inputs, torch.float64))
        for i, (f, t, e) in enumerate(zip(found, torchs, exact)):
            assert f.device.type == DEVICE and (f.shape, f.dtype) == (t.shape, t.dtype)
            if not f.is_floating_point():
                assert torch.equal(f, t), f"result {i}"
                continue
            ours, theirs = ((x.double().cpu() - e).abs().max().item() if x.numel() else 0.0 for x in (f, t))
            ulp = torch.finfo(dtype).eps * max(e.abs().max().item() if e.numel() else 0.0, 1e-30)
            assert ours <= max(2 * theirs, 8 * ulp), f"n={n}, result {i}: {ours:.3g} from float64, torch {theirs:.3g}"


@pytest.mark.parametrize("op", [op for op in OPS if op.name not in ("fused_dot_feature_interaction self", "deform_conv2d")], ids=lambda op: op.name)
def test_empty(op):
    inputs = op.make(torch.float32, 0)
    assert [f.shape for f in listed(op.call(*cuda(inputs)))] == [p.shape for p in listed(op.plain(*inputs))]


@compares_devices
def test_dropout_drops_what_the_cpu_drops():
    x, b, seed = torch.randn(300, 129), torch.randn(129), torch.tensor(1234567)
    here = torch.ops.oneflow.bias_dropout(x, b, 1, 0.3, seed)
    there = torch.ops.oneflow.bias_dropout(x.cuda(), b.cuda(), 1, 0.3, seed.cuda())
    torch.testing.assert_close(there.cpu(), here)
    scores = torch.randn(3, 70, 70)
    for a, b in zip(torch.ops.oneflow.masked_softmax(scores, None, 0, 1.0, -9.0, 0.4, seed), torch.ops.oneflow.masked_softmax(scores.cuda(), None, 0, 1.0, -9.0, 0.4, seed.cuda())):
        torch.testing.assert_close(b.cpu(), a)


@compares_devices
def test_optimizers_match_the_cpu():
    torch.manual_seed(0)
    lists = [[torch.rand(s) for s in ((3, 5), (0,), (7000,))] for _ in range(4)]
    here, there = [[t.clone() for t in part] for part in lists], [[t.cuda() for t in part] for part in lists]
    for model, diff, m, v in (here, there):
        C.multi_tensor_adam_update(model, diff, m, v, 0.1, 0.02, 0.9, 0.99, 0.19, 0.0199, True, 0.5, 0.03, 1e-6)
        C.multi_tensor_momentum_update(model, diff, m, 0.5, 0.02, 0.1, 0.9, 0.1, True, False)
        C.multi_tensor_sgd_update(model, diff, 0.5, 0.02, 0.1)
    for a, b in zip((t for part in here for t in part), (t for part in there for t in part)):
        torch.testing.assert_close(b.cpu(), a)


@compares_devices
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_unique_ids_are_in_the_cpus_order(n):
    keys = torch.randint(-40, 40, (n,))
    tables = (keys % 3).to(torch.uint8)
    for a, b in zip(C.one_embedding_unique_key_value_pair(keys, tables, 3, "e"), C.one_embedding_unique_key_value_pair(keys.cuda(), tables.cuda(), 3, "e")):
        assert torch.equal(b.cpu(), a)
