"""Helpers of the file tests: the recorded checkpoints and comparisons with them."""

import json
import pathlib

import numpy as np
import torch

CKPT = pathlib.Path(__file__).parents[1] / "golden" / "ckpt"
EXPECTED = json.loads((CKPT / "expected.json").read_text())
DTYPES = {
    str(d).split(".")[1]: d
    for d in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.bool,
    )
}


def compare(actual, tree, arrays, where="data"):
    """Assert that `found` is the recorded structure, bit for bit."""
    if "tensor" in tree:
        want = arrays[tree["tensor"]]
        assert isinstance(actual, torch.Tensor), where
        assert isinstance(actual, torch.nn.Parameter) == (tree["class"] == "Parameter"), where
        assert actual.dtype is DTYPES[tree["dtype"]], where
        got = actual.detach().numpy()
        assert got.shape == want.shape and got.tobytes() == want.astype(got.dtype).tobytes(), where
    elif "dict" in tree:
        assert type(actual).__name__ == tree["type"], where
        assert list(actual) == [k for k, _ in tree["dict"]], where
        for key, sub in tree["dict"]:
            compare(actual[key], sub, arrays, f"{where}[{key!r}]")
    elif "list" in tree or "tuple" in tree:
        kind = list if "list" in tree else tuple
        items = tree.get("list", tree.get("tuple"))
        assert type(actual) is kind and len(actual) == len(items), where
        for i, (a, b) in enumerate(zip(actual, items, strict=True)):
            compare(a, b, arrays, f"{where}[{i}]")
    else:
        assert actual == tree["value"] and type(actual) is type(tree["value"]), where


def _bytes(t):
    return bytes(t.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).tolist())


def assert_same_bits(a, b):
    """Equal structure, types, dtypes, bits."""
    if isinstance(a, torch.Tensor):
        assert type(a) is type(b) and a.dtype is b.dtype and a.shape == b.shape
        assert _bytes(a) == _bytes(b)
    elif isinstance(a, dict):
        assert type(a) is type(b) and list(a) == list(b)
        for k in a:
            assert_same_bits(a[k], b[k])
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_bits(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    else:
        assert a == b and type(a) is type(b)
