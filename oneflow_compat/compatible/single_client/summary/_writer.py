"""The event file of the session, and the functions that write into it, inside a job or outside."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from .._jobs import context as _context
from ..image import _pillow
from . import _proto

_writer = None


class _Writer:
    def __init__(self, logdir: str | None) -> None:
        os.makedirs(logdir, exist_ok=True)
        self.logdir = logdir
        self.path = os.path.join(logdir, f"events.out.tfevents.{int(time.time())}.{os.getpid()}")
        self._file = open(self.path, "ab")
        self.write(_proto.event(time.time(), 0, version="brain.Event:2"))

    def write(self, event: bytes) -> None:
        self._file.write(_proto.record(event))

    def summary(self, summary: bytes, step: int) -> None:
        self.write(_proto.event(time.time(), step, summary))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def create_summary_writer(logdir: str | None, name: str | None = None) -> None:
    """Open an event file in `logdir`; the writing functions below go there."""
    global _writer
    if _writer is not None:
        _writer.close()
    _writer = _Writer(logdir)


def flush_summary_writer(name: str | None = None) -> None:
    current().flush()


def current() -> Any:
    if _writer is None:
        raise RuntimeError("flow.summary: call flow.summary.create_summary_writer(logdir) first")
    return _writer


def _emit(values: dict[str, Any], write: Any) -> None:
    """write(**numpy values): now for arrays; after each call of the job for blobs of a job."""
    import numpy as np

    blobs = {k: v for k, v in values.items() if isinstance(v, torch.Tensor)}
    trace = _context.trace()
    if trace is None or not blobs:
        write(
            **{k: v if v is None or isinstance(v, (str, bytes)) else np.asarray(v) for k, v in values.items()}
        )
        return
    got = {k: v for k, v in values.items() if k not in blobs}
    last = list(blobs)[-1]
    for key, tensor in blobs.items():

        def handler(blob: torch.Tensor, key: Any = key) -> None:
            got[key] = blob.numpy()
            if key == last:
                write(**got)

        trace.watches.append((tensor, handler))


def _tag(tag: str, default: Any) -> Any:
    import numpy as np

    if tag is None:
        return default
    return (
        tag
        if isinstance(tag, str)
        else np.asarray(tag).astype(np.uint8).tobytes().rstrip(b"\0").decode("utf8")
    )


def _step(step: Any) -> Any:
    import numpy as np

    return 0 if step is None else int(np.asarray(step).reshape(-1)[0])


def scalar(value: Any, step: Any, tag: Any, name: str | None = None) -> None:
    """Write one scalar; inside a job all three may be blobs, the tag an int8 blob of its utf-8 bytes."""

    def write(value: Any, step: Any, tag: Any) -> None:
        summary = _proto.summary_value(_tag(tag, "scalar"), _proto.float32(2, float(value.reshape(-1)[0])))
        current().summary(summary, _step(step))

    _emit(dict(value=value, step=step, tag=tag), write)


def histogram(value: Any, step: Any, tag: Any, name: str | None = None) -> None:
    """The distribution of the values in 30 bins."""

    def write(value: Any, step: Any, tag: Any) -> None:
        import numpy as np

        flat = value.reshape(-1).astype(np.float64)
        counts, edges = np.histogram(flat, 30)
        histo = (
            _proto.field(1, float(flat.min()))
            + _proto.field(2, float(flat.max()))
            + _proto.field(3, float(flat.size))
            + _proto.field(4, float(flat.sum()))
            + _proto.field(5, float((flat * flat).sum()))
            + _proto.doubles(6, edges[1:])
            + _proto.doubles(7, counts)
        )
        current().summary(_proto.summary_value(_tag(tag, "histogram"), _proto.field(5, histo)), _step(step))

    _emit(dict(value=value, step=step, tag=tag), write)


def image(value: Any, step: Any = None, tag: Any = None, name: str | None = None) -> None:
    """uint8 images (n, h, w, c), c = 1, 3 or 4, as PNG; needs Pillow."""

    def write(value: Any, step: Any, tag: Any) -> None:
        import io

        import numpy as np

        base = _tag(tag, "image")
        images = value if value.ndim == 4 else value[None]
        for i, pixels in enumerate(images):
            h, w, c = pixels.shape
            buffer = io.BytesIO()
            _pillow().fromarray(
                np.ascontiguousarray(pixels[..., 0] if c == 1 else pixels).astype(np.uint8)
            ).save(buffer, "PNG")
            inner = (
                _proto.field(1, h)
                + _proto.field(2, w)
                + _proto.field(3, c)
                + _proto.field(4, buffer.getvalue())
            )
            current().summary(
                _proto.summary_value(f"{base}/{i}" if len(images) > 1 else base, _proto.field(4, inner)),
                _step(step),
            )

    _emit(dict(value=value, step=step, tag=tag), write)


def pb(value: Any, step: Any = None, name: str | None = None) -> None:
    """A ready Summary message: what hparams() and text() return, or its bytes as an int8 array or blob."""

    def write(value: Any, step: Any) -> None:
        import numpy as np

        data = value if isinstance(value, bytes) else np.asarray(value).astype(np.int8).tobytes()
        current().summary(data, _step(step))

    if hasattr(value, "SerializeToString"):
        value = value.SerializeToString()
    _emit(dict(value=value, step=step), write)
