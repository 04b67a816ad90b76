"""Megatron's indexed token files (<prefix>.idx, <prefix>.bin) as sequences of tokens."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._file_safety.errors import CheckpointError, named_errors
from .._file_safety.opening import open_regular
from .._file_safety.shown import shown
from .shuffle import MersenneTwister

_MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {
    1: np.uint8,
    2: np.int8,
    3: np.int16,
    4: np.int32,
    5: np.int64,
    6: np.float32,
    7: np.float64,
    8: np.uint16,
}


_CHUNK = 1 << 20  # sequences or documents that are checked together
_MOST_DOCUMENTS = 4  # documents for each token


def _mapped(path: str) -> np.ndarray:
    """Return the bytes of a regular file, mapped into memory."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        return np.memmap(file, np.uint8, "r") if size else np.empty(0, np.uint8)


class TokenFile:
    """The documents of a token file, mapped into memory."""

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        index, data = f"{prefix}.idx", f"{prefix}.bin"
        for path in (index, data):
            if not os.path.exists(path):
                raise FileNotFoundError(f"there is no file {path!r} (data_file_prefix {prefix!r})")
        self.path = index
        with named_errors(index):
            self._read_index(_mapped(index))
        self._data = _mapped(data)
        end = int(self.starts[-1]) + int(self.sizes[-1]) * self.dtype.itemsize if len(self.sizes) else 0
        if end > len(self._data):
            raise CheckpointError.of(
                data, f"truncated: {index} describes {end} bytes, and it has {len(self._data)}"
            )

    def _read_index(self, raw: np.ndarray) -> None:
        """Read the sizes and starts of the sequences, and the first sequence of each document."""
        head = raw[:34].tobytes()
        if head[:9] != _MAGIC or len(head) < 34:
            raise CheckpointError(f"not a Megatron index file: it starts with {shown(head[:9])}")
        version, code, count, documents = struct.unpack("<QBQQ", head[9:])
        need = 34 + 12 * count + 8 * documents
        if version != 1 or code not in DTYPES or documents < 1 or len(raw) < need:
            raise CheckpointError(
                f"version {version}, element type {code}, {count} sequences, {documents} documents,"
                f" {len(raw)} bytes: truncated or unknown"
            )
        self.sizes = np.frombuffer(raw, "<i4", count, 34)
        self.starts = np.frombuffer(raw, "<i8", count, 34 + 4 * count)
        self.documents = np.frombuffer(raw, "<i8", documents, 34 + 12 * count)
        self.dtype = np.dtype(DTYPES[code])
        self._check_sequences()
        self._check_documents()

    def _check_sequences(self) -> None:
        """Raise unless each sequence begins where the one before it ends."""
        for begin in range(0, len(self.sizes), _CHUNK):
            sizes, starts = (array[begin : begin + _CHUNK + 1] for array in (self.sizes, self.starts))
            ends = starts + sizes.astype(np.int64) * self.dtype.itemsize
            if sizes.min() < 0 or starts.min() < 0 or (ends[:-1] != starts[1:]).any():
                raise CheckpointError(
                    f"altered: of the sequences {begin}..{begin + len(sizes) - 1}, one has a negative size or"
                    " does not begin where the one before it ends"
                )

    def _check_documents(self) -> None:
        """Raise unless the documents are ranges of sequences, in order."""
        for begin in range(0, len(self.documents), _CHUNK):
            edges = self.documents[begin : begin + _CHUNK + 1]
            if edges.min() < 0 or edges.max() > len(self.sizes) or (edges[:-1] > edges[1:]).any():
                raise CheckpointError(
                    f"altered: of the documents {begin}..{begin + len(edges) - 1}, one is no range of the"
                    f" {len(self.sizes)} sequences"
                )

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.documents) - 1

    def size(self, i: int) -> int:
        """Return the number of tokens of a document."""
        return int(self.sizes[int(self.documents[i]) : int(self.documents[i + 1])].sum())

    def document(self, i: int) -> np.ndarray:
        """Return the tokens of a document: its sequences, which are adjacent."""
        size = self.size(i)
        if not size:
            return np.empty(0, self.dtype)
        return np.frombuffer(self._data, self.dtype, size, int(self.starts[int(self.documents[i])]))


def split_documents(count: int, sizes: Sequence[int] | None, index: int | None) -> range:
    """Return the documents of split `index`, if `count` documents are split in the ratio `sizes`."""
    if sizes is None:
        return range(count)
    if index is None or not 0 <= index < len(sizes):
        raise ValueError(f"split_index must be in 0..{len(sizes) - 1}, found {index!r}")
    total = sum(sizes)
    edges = [round(sum(sizes[:i]) / total * count) for i in range(len(sizes) + 1)]
    return range(edges[index], edges[index + 1])


class SampleStream:
    """Endless samples of seq_length + 1 tokens; num_samples make an epoch.

    Orders agree with real OneFlow 0.9.0 for the same seed.

    The documents are repeated as often as needed for the samples, and all repetitions are shuffled together.
    If the last repetition contributes few samples, it is shuffled separately, and its samples come last. Then
    the samples are shuffled.
    """

    def __init__(
        self,
        tokens: TokenFile,
        seq_length: int,
        num_samples: int,
        shuffled: bool,
        seed: int,
        split_sizes: Sequence[int] | None = None,
        split_index: int | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self._tokens, self._length, self._count = tokens, seq_length, num_samples
        self._documents = list(split_documents(len(tokens), split_sizes, split_index))
        self._shuffle = MersenneTwister(seed).shuffle if shuffled else lambda items: None
        self._rank, self._ranks = rank, ranks
        self._size = sum(tokens.size(d) for d in self._documents)
        if self._size < 1:
            raise ValueError("GPTIndexedBinDataReader: the chosen documents hold no token")
        if len(self._documents) > _MOST_DOCUMENTS * self._size:  # an epoch repeats the list of documents
            raise CheckpointError(
                f"GPTIndexedBinDataReader: {tokens.path} is altered: {len(self._documents)} documents hold"
                f" {self._size} tokens"
            )

    def _samples_in(self, passes: int) -> int:
        return max(passes * self._size - 1, 0) // self._length

    def _order(self) -> tuple[list[int], list[int]]:
        """Return the documents in order, and the order of the samples cut from them."""
        passes = -(-(self._count * self._length + 1) // self._size)
        whole = self._samples_in(passes - 1)
        if passes == 1 or self._count - whole >= int(0.8 * self._samples_in(1)):
            parts, edges = [self._documents * passes], [0, self._samples_in(passes)]
        else:
            parts = [self._documents * (passes - 1), list(self._documents)]
            edges = [0, whole, self._samples_in(passes)]
        for part in parts:
            self._shuffle(part)
        samples = [list(range(a, b)) for a, b in zip(edges, edges[1:])]
        for part in samples:
            self._shuffle(part)
        return sum(parts, []), sum(samples, [])[: self._count]

    def __iter__(self) -> Iterator[np.ndarray]:
        position = 0
        while True:
            documents, samples = self._order()
            ends = np.cumsum([self._tokens.size(d) for d in documents])
            for k in samples:
                if position % self._ranks == self._rank:
                    yield self._sample(documents, ends, k * self._length)
                position += 1

    def _sample(self, documents: Sequence[int], ends: Any, start: int) -> np.ndarray:
        stop = start + self._length + 1
        begin_index, end_index = np.searchsorted(ends, (start, stop - 1), "right")
        parts, begin = [], int(ends[begin_index - 1]) if begin_index else 0
        for d in documents[begin_index : end_index + 1]:
            tokens = self._tokens.document(d)
            parts.append(tokens[max(start - begin, 0) : stop - begin])
            begin += len(tokens)
        return np.concatenate(parts)
