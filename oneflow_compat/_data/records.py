"""Files of OFRecords: each record is its length (8 bytes, little-endian) and an OFRecord message.

A data set is a folder of part files <prefix><number>, optionally with leading zeros.
"""

from __future__ import annotations

import mmap
import os
import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._file_safety.errors import CheckpointError
from .._file_safety.shown import reason, shown, shown_names
from . import shuffle, wire

_LENGTH = struct.Struct("<q")


class CorruptRecord(CheckpointError):
    """A record cannot be read; the message names the file and the offset of the record."""


class Record:
    """One record: {name: undecoded Feature}, and its file and offset."""

    __slots__ = ("features", "file", "offset", "_source")

    def __init__(
        self, features: dict[str, Any], file: str | os.PathLike[str], offset: int, source: Any = None
    ) -> None:
        self.features, self.file, self.offset, self._source = features, file, offset, source

    def field(self, name: str) -> tuple[Any, ...]:
        """Return (name of the list, values) of a field. Raise KeyError if it is absent, and CorruptRecord if
        it does not parse.
        """
        try:
            feature = self.features[name]
        except KeyError:
            raise KeyError(
                f"{self.where}: there is no field {name!r}; the record has {shown_names(self.features)}"
            ) from None
        try:
            list_name, body = wire.decode_feature(feature)
            return list_name, wire.decode_list(list_name, body) if list_name else []
        except wire.WireError as error:
            raise CorruptRecord(f"{self.where}: field {shown(name)} is corrupt: {reason(error)}") from None

    @property
    def where(self) -> str:
        return f"{self.file}, record at byte {self.offset}"


# --------------------------------------------------------------------------- writing
class PartFile:
    """A new file, used as `with PartFile(path) as out:`. Its folder is created."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        self._file, self.count = open(self.path, "wb"), 0

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RecordWriter(PartFile):
    """Write records to one part file: `with RecordWriter(path) as out: out.write(record)`.

    A record is an `OFRecord` message, its bytes, or {name: value}, where a value is bytes, str, a
    list of bytes, a number, or numbers (a list, numpy array or tensor: float32 and float16 go to
    float_list, float64 to double_list, int64 to int64_list, other integers and bool to int32_list;
    Python floats go to float_list, Python ints to int32_list if they fit, else int64_list).
    """

    def write(self, record: Mapping[str, Any] | Any) -> int:
        """Append one record and return its offset."""
        if isinstance(record, dict):
            record = wire.encode_record(
                {_checked(name): _typed(name, value) for name, value in record.items()}
            )
        elif hasattr(record, "SerializeToString"):
            record = record.SerializeToString()
        elif not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"a record is a dict, an OFRecord message or its bytes, found {type(record).__name__}"
            )
        offset = self._file.tell()
        self._file.write(_LENGTH.pack(len(record)))
        self._file.write(record)
        self.count += 1
        return offset


def _checked(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a field is a str, found {type(name).__name__} {name!r}")
    return name


def _typed(name: str, value: Any) -> tuple[str, Any]:
    """Return (name of the list, values) under which a record stores a value."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes_list", [bytes(value)]
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (bytes, bytearray)):
        return "bytes_list", list(value)
    array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value).ravel()
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"field {name!r}: a value is bytes, str or numbers; found {type(value).__name__} of {array.dtype}"
        )
    return _list_for(array, has_dtype=hasattr(value, "dtype")), array


def _list_for(array: np.ndarray, has_dtype: bool) -> str:
    """Return the name of the list for an array. Python numbers, which have no dtype, are stored in 32 bits if
    they fit.
    """
    if array.dtype.kind == "f":
        return "double_list" if has_dtype and array.dtype.itemsize == 8 else "float_list"
    is_wide = array.dtype.itemsize == 8 or array.dtype == np.uint32
    fits = array.size == 0 or array.min() >= -(2**31) and array.max() < 2**31
    return "int64_list" if is_wide and (has_dtype or not fits) else "int32_list"


# --------------------------------------------------------------------------- reading
def part_names(prefix: str, count: int, suffix_length: int) -> list[str]:
    return [prefix + str(i).zfill(max(suffix_length, 0)) for i in range(count)]


def _map(path: str | os.PathLike[str]) -> Any:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_file(path: str | os.PathLike[str], on_corrupt: str = "raise") -> Iterator[Record]:
    """Yield the records of one part file.

    on_corrupt="skip": skip a record that does not parse; after an impossible length, skip the rest of the
    file. A warning names the file and the offset.
    """
    data = _map(path)
    view, at, end = memoryview(data), 0, len(data)
    record: Any
    size: Any
    while at < end:
        record, problem, size = _read_record(view, at, path)
        if record is not None:
            yield record
        else:
            message = f"{path}: corrupt record at byte {at}: {problem}"
            if on_corrupt != "skip":
                raise CorruptRecord(message)
            skipped = "the rest of the file is skipped" if size is None else "skipped"
            warnings.warn(f"{message}; {skipped}", stacklevel=2)
            if size is None:
                return
        at += 8 + size


def _read_record(
    view: memoryview, at: int, path: str | os.PathLike[str]
) -> tuple[Any, str | None, int | None]:
    """Return (record or None, description of the defect, size or None if it is unknown)."""
    left = len(view) - at - 8
    if left < 0:
        return None, f"{left + 8} bytes are left, a record begins with 8", None
    size = _LENGTH.unpack_from(view, at)[0]
    if not 0 <= size <= left:
        return None, f"its length is {size}, {left} bytes are left", None
    try:
        features = wire.split_record(view[at + 8 : at + 8 + size])
    except (wire.WireError, UnicodeDecodeError) as error:
        return None, f"not an OFRecord message: {reason(error)}", size
    return Record(features, path, at), None, size


class _RepeatingItsError:
    """An iterator that raises its error at each later call too.

    A generator that raised would end instead, and the batches after a corrupt record would be empty.
    """

    def __init__(self, records: Iterator[Any]) -> None:
        self._records = records
        self._error: Exception | None = None

    def __iter__(self) -> _RepeatingItsError:
        return self

    def __next__(self) -> Any:
        if self._error is not None:
            raise self._error
        try:
            return next(self._records)
        except Exception as error:
            self._error = error
            raise


class RecordStream:
    """The endless stream of a data set's records: epoch after epoch, without a gap between them.

    Files are read in the order of their numbers; with shuffle_after_epoch, in another order from the second
    epoch on. Each rank reads a contiguous share of the files. epoch counts from 0.
    """

    def __init__(
        self,
        paths: Sequence[str],
        shuffle_after_epoch: bool = False,
        rank: int = 0,
        ranks: int = 1,
        on_corrupt: str = "raise",
    ) -> None:
        if on_corrupt not in ("raise", "skip"):
            raise ValueError(f"on_corrupt is 'raise' or 'skip', found {on_corrupt!r}")
        missing = [p for p in paths if not os.path.isfile(p)]
        if missing:
            raise FileNotFoundError(
                f"there is no part file {missing[0]!r} ({len(missing)} of {len(paths)} are missing)"
            )
        if not 0 < ranks <= len(paths):
            raise ValueError(f"{len(paths)} part files cannot be shared by {ranks} ranks: each needs one")
        self._paths, self._shuffled, self._on_corrupt = list(paths), shuffle_after_epoch, on_corrupt
        base, rest = divmod(len(paths), ranks)
        begin = rank * base + min(rank, rest)
        self._share = slice(begin, begin + base + (rank < rest))
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        return _RepeatingItsError(self._endless())

    def _endless(self) -> Iterator[Any]:
        while True:
            any_record = False
            self._begin_epoch()
            for path in self._paths[self._share]:
                for record in self._read(path):
                    any_record = True
                    yield record
            if not any_record:
                raise CorruptRecord(f"there is no readable record in {', '.join(self._paths[self._share])}")
            self.epoch += 1

    def _begin_epoch(self) -> None:
        if self._shuffled and self.epoch:
            shuffle.epoch_shuffle(self._paths, self.epoch)

    def _read(self, path: str | os.PathLike[str]) -> Iterator[Any]:
        return read_file(path, self._on_corrupt)
