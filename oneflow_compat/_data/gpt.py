"""Megatron's indexed token files (<prefix>.idx, <prefix>.bin) as sequences of tokens."""
from __future__ import annotations

import os
import struct

import numpy as np

_MAGIC = b"MMIDIDX\x00\x00"
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float32, 7: np.float64, 8: np.uint16}


class TokenFile:
    """The documents of a token file, mapped into memory."""

    def __init__(self, prefix):
        index, data = f"{prefix}.idx", f"{prefix}.bin"
        for path in (index, data):
            if not os.path.isfile(path):
                raise FileNotFoundError(f"there is no file {path!r} (data_file_prefix {prefix!r})")
        raw = np.memmap(index, np.uint8, "r")
        head = raw[:34].tobytes()
        if head[:9] != _MAGIC or len(head) < 34:
            raise RuntimeError(f"{index}: not a Megatron index file: it starts with {head[:9]!r}")
        version, code, count, documents = struct.unpack("<QBQQ", head[9:])
        need = 34 + 12 * count + 8 * documents
        if version != 1 or code not in DTYPES or documents < 1 or len(raw) < need:
            raise RuntimeError(f"{index}: version {version}, element type {code}, {count} sequences, {documents} documents, {len(raw)} bytes: truncated or unknown")
        self.sizes = np.frombuffer(raw, "<i4", count, 34)
        self.starts = np.frombuffer(raw, "<i8", count, 34 + 4 * count)
        self.documents = np.frombuffer(raw, "<i8", documents, 34 + 12 * count)
        self.dtype = np.dtype(DTYPES[code])
        size = os.path.getsize(data)
        if count and int(self.starts[-1]) + int(self.sizes[-1]) * self.dtype.itemsize > size:
            raise RuntimeError(f"{data}: truncated: {index} describes more than its {size} bytes")
        self._data = np.memmap(data, np.uint8, "r") if size else np.empty(0, np.uint8)

    def __len__(self):
        """How many documents."""
        return len(self.documents) - 1

    def document(self, i) -> np.ndarray:
        """The tokens of a document: its sequences, which lie one after the other."""
        first, last = int(self.documents[i]), int(self.documents[i + 1])
        if first == last:
            return np.empty(0, self.dtype)
        return np.frombuffer(self._data, self.dtype, int(self.sizes[first:last].sum()), int(self.starts[first]))


def split_documents(count, sizes, index) -> range:
    """The documents of share `index` when `count` documents are split in the ratio of `sizes`."""
    if sizes is None:
        return range(count)
    if index is None or not 0 <= index < len(sizes):
        raise ValueError(f"split_index must be in 0..{len(sizes) - 1}, found {index!r}")
    total = sum(sizes)
    edges = [round(sum(sizes[:i]) / total * count) for i in range(len(sizes) + 1)]
    return range(edges[index], edges[index + 1])


class SampleStream:
    """Endless samples of seq_length + 1 tokens; num_samples make an epoch."""

    def __init__(self, tokens, seq_length, num_samples, shuffled, seed, split_sizes=None, split_index=None, rank=0, ranks=1):
        self._tokens, self._length, self._count = tokens, seq_length, num_samples
        self._documents = list(split_documents(len(tokens), split_sizes, split_index))
        self._random = np.random.default_rng(seed) if shuffled else None
        self._rank, self._ranks = rank, ranks
        if sum(len(tokens.document(d)) for d in self._documents) < 1:
            raise ValueError("GPTIndexedBinDataReader: the chosen documents hold no token")

    def _stream(self):
        """Tokens of all documents, again and again, in another order each time."""
        while True:
            order = list(self._documents)
            if self._random is not None:
                self._random.shuffle(order)
            for d in order:
                yield self._tokens.document(d)

    def _epoch(self):
        parts, have, documents = [], 0, self._stream()
        for _ in range(self._count):
            while have < self._length + 1:
                parts.append(next(documents))
                have += len(parts[-1])
            joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
            yield joined[: self._length + 1]
            parts = [joined[self._length :]]
            have = len(parts[0])

    def __iter__(self):
        position = 0
        while True:
            samples = self._epoch()
            if self._random is not None:
                samples = list(samples)
                self._random.shuffle(samples)
            for sample in samples:
                if position % self._ranks == self._rank:
                    yield sample
                position += 1
