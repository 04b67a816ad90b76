"""OneRec messages: oneflow.nn.OneRecReader, oneflow.decode_onerec, oneflow.read_onerec."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import torch

from ... import _processes
from ..._data import onerec, shuffle
from ..._data.buffers import TensorBuffer
from ..._data.ingraph import Promised
from .record_sources import Decoder, MadeOnce, Source, seed_or_fresh

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..._global.placement import placement as Placement
    from ...sbp import sbp as Sbp


__all__ = ["OneRecReader", "decode_onerec", "read_onerec"]


class OneRecReader(Source):
    """Batches of OneRec messages from `files`, a TensorBuffer for oneflow.decode_onerec, without end and
    without a gap between epochs.

    shuffle draws from a buffer of shuffle_buffer_size records (shuffle_mode "instance") or batches ("batch");
    shuffle_after_epoch reorders the files in each epoch. Orders are real OneFlow's for the same random_seed.
    Digests are
    always checked, with verify_example the message too: CorruptRecord names file and offset. Needs
    flatbuffers and xxhash.

    ValueError for another shuffle_mode, and unless batch_size is positive.
    """

    def __init__(
        self,
        files: Sequence[str],
        batch_size: int,
        shuffle: bool,
        shuffle_mode: Literal["batch", "instance"],
        random_seed: int | None = None,
        shuffle_buffer_size: int = 1024,
        shuffle_after_epoch: bool = False,
        verify_example: bool = True,
        placement: Placement | None = None,
        sbp: Sbp | Sequence[Sbp] | None = None,
    ) -> None:
        super().__init__(None, placement, sbp)
        if shuffle_mode not in ("batch", "instance"):
            raise ValueError(f"OneRecReader: shuffle_mode is 'batch' or 'instance', found {shuffle_mode!r}")
        if batch_size < 1:
            raise ValueError(f"OneRecReader: batch_size must be positive, found {batch_size}")
        self.files, self.batch_size, self.shuffle_mode = list(files), batch_size, shuffle_mode
        self._stream = onerec.OneRecStream(
            self.files,
            shuffle_after_epoch,
            _processes.get_rank(),
            _processes.get_world_size(),
            verify_example,
        )
        self._options = (shuffle, shuffle_buffer_size, random_seed)
        self._batches: MadeOnce[Iterator[Any]] = MadeOnce()

    def forward(self) -> TensorBuffer:
        batch = onerec.Batch(next(self._batches.get(self._start)))
        batch.source = self
        return batch

    def _start(self) -> Iterator[Any]:
        shuffled, size, seed = self._options
        drawn = lambda stream: (
            shuffle.ShuffleBuffer(stream, size, seed_or_fresh(seed)) if shuffled else stream
        )
        stream = iter(self._stream)
        if self.shuffle_mode == "instance":
            stream = drawn(stream)
        batches = iter(lambda: list(itertools.islice(stream, self.batch_size)), None)
        return batches if self.shuffle_mode == "instance" else drawn(batches)


class _OneRecDecoder(Decoder):
    def __init__(self, *options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, input: Any) -> torch.Tensor:
        return self._place(onerec.decode(input, *self.options), input)


def decode_onerec(
    input: TensorBuffer,
    key: str,
    dtype: torch.dtype,
    shape: Sequence[int],
    is_dynamic: bool = False,
    reshape: Sequence[int] | None = None,
    batch_padding: Sequence[int] | None = None,
) -> torch.Tensor:
    """The field `key` of a batch of OneRec messages (what OneRecReader gives) as a tensor (batch, *shape).

    dtype: int8, int32, int64, float32 or float64, and the field must hold it. reshape (one -1 allowed) is
    applied to each
    record's value. batch_padding=[n, 0, ...] fills the first dimension up to n with zeros. is_dynamic lets
    the shape be
    the batch's own, of at most as many elements as `shape`. RuntimeError where a record does not fit, naming
    it.
    """
    decoder = _OneRecDecoder(key, dtype, shape, is_dynamic, reshape, batch_padding)
    if isinstance(input, Promised):  # inside build(): lives as long as the reader
        input.link.node.stage.__dict__.setdefault("_graph_decoders", []).append(decoder)
    return decoder(input)


_readers: dict[str, OneRecReader] = {}  # read_onerec's arguments -> reader


def read_onerec(
    files: Sequence[str],
    batch_size: int,
    random_shuffle: bool,
    shuffle_mode: Literal["batch", "instance"],
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    verify_example: bool = True,
    placement: Placement | None = None,
    sbp: Sbp | Sequence[Sbp] | None = None,
) -> TensorBuffer:
    """The next batch of OneRec messages of `files` (OneFlow 0.5 and 0.6): calls with equal arguments go on
    with one OneRecReader.
    """
    options = (shuffle_mode, None, shuffle_buffer_size, shuffle_after_epoch, verify_example, placement, sbp)
    key = repr((list(files), batch_size, random_shuffle, options))
    if key not in _readers:
        _readers[key] = OneRecReader(files, batch_size, random_shuffle, *options)
    return _readers[key]()
