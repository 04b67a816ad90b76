"""torch's files, read with the Unpickler of this package: zip files, and the streams that torch wrote before
2020.

Each storage is read once, from a member of exactly its size, so a file cannot name more bytes than it has.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Container
from typing import IO, Any

import torch

from .._cpu_for_cuda import cpu_for_cuda
from .budget import Budget
from .constructors.storage_classes import StorageClass
from .errors import CheckpointError, RefusedError
from .opening import open_zip
from .shown import reason, shown
from .unpickler import FindShell, Unpickler

_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_LOCAL_HEADER = 30
_END = b"PK\5\6" + bytes(18)  # the last record of a zip file without a comment
_CHUNK = 1 << 22


# --------------------------------------------------------------------------- where storages go
def _restorer(map_location: Any) -> Any:
    """Return a function that moves a storage from its saved location to `map_location`, as in torch.load."""
    if map_location is None:
        return _restore
    if isinstance(map_location, dict):
        return lambda storage, location: _restore(storage, map_location.get(location, location))
    if isinstance(map_location, str | torch.device):
        return lambda storage, location: _restore(storage, str(map_location))

    def restore(storage: Any, location: Any) -> Any:
        try:
            moved = map_location(storage, location)
        except Exception as error:
            error.of_the_caller = True  # type: ignore[attr-defined]
            raise
        moved = _restore(storage, location) if moved is None else moved
        return moved._untyped_storage if isinstance(moved, torch.storage.TypedStorage) else moved

    return restore


def _restore(storage: Any, location: Any) -> Any:
    try:
        return torch.serialization.default_restore_location(storage, cpu_for_cuda(location))
    except RuntimeError as error:  # the error comes from the device, not from the file
        raise CheckpointError(reason(error)) from None


def _is_meta(map_location: Any) -> bool:
    return isinstance(map_location, str | torch.device) and torch.device(map_location).type == "meta"


class _Reader(Unpickler):
    """The Unpickler, with the storages of a torch file as persistent values."""

    def __init__(
        self,
        file: Any,
        size: Any,
        budget: Budget,
        storage: Any,
        find_shell: Any,
        encoding: str,
        names: Container[str] | None = None,
    ) -> None:
        super().__init__(file, size, budget, encoding=encoding, find_shell=find_shell)
        self._storage, self._names = storage, names

    def find_class(self, module: str, name: str) -> Any:
        if self._names is not None and f"{module}.{name}" not in self._names:
            raise RefusedError(f"it asks for {shown(f'{module}.{name}')}, and may hold tensors only")
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        if type(pid) is not tuple or len(pid) < 4:
            raise RefusedError("altered: a persistent id is not that of a storage")
        name = _text(pid[0])
        if name == "module":  # files before 2020: a class, and its source code, which torch compared
            return pid[1]
        is_storage = name == "storage" and len(pid) in (5, 6) and isinstance(pid[1], StorageClass)
        if not is_storage or type(pid[4]) is not int or pid[4] < 0:
            raise RefusedError(f"altered: a persistent id is {shown(pid)}")
        _, storage_class, key, location, count, *view = pid
        return self._storage(
            storage_class.dtype, _text(key), _text(location), count, view[0] if view else None
        )


def _text(value: Any) -> str:
    if type(value) is bytes:
        value = value.decode("ascii")
    if type(value) is not str:
        raise RefusedError(f"altered: the name of a storage is {shown(value)}")
    return value


def _typed(untyped: torch.UntypedStorage, dtype: Any) -> torch.storage.TypedStorage:
    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def _fresh(nbytes: int) -> tuple[torch.UntypedStorage, memoryview]:
    """Return a new storage, and its bytes as a memoryview."""
    values = torch.empty(nbytes, dtype=torch.uint8)
    return values.untyped_storage(), values.numpy().data


# --------------------------------------------------------------------------- zip
class Archive:
    """The members of a torch zip file.

    Names are unique. Members do not overlap and have the sizes given in the directory.
    """

    def __init__(self, file: Any, size: int, check_crc: bool) -> None:
        self.file, self._check_crc = file, check_crc
        self.zip = open_zip(file, size)
        members = self.zip.infolist()
        self.members = {member.filename: member for member in members}
        if len(self.members) != len(members):
            raise RefusedError("altered: two members have one name")
        self.starts = self._starts(members, size)
        pickles = [name for name in self.members if name.endswith("/data.pkl") and name.count("/") == 1]
        if len(pickles) != 1:
            raise CheckpointError(
                f"truncated, altered, or no torch file: it has {len(pickles)} members data.pkl, not one"
            )
        self.prefix = pickles[0][: -len("data.pkl")]
        if self.prefix + "constants.pkl" in self.members:
            raise RefusedError(
                "it is a TorchScript program, which runs code; if you trust the file, load it with"
                " torch.jit.load"
            )

    def _starts(self, members: Any, size: Any) -> dict[str, int]:
        """Return {name: offset of its bytes}. Refuse members that overlap."""
        starts, end = {}, 0
        for member in sorted(members, key=lambda m: m.header_offset):
            if member.header_offset < end or member.flag_bits & 1:
                raise RefusedError(
                    f"altered or hostile: the member {shown(member.filename)} lies over another one, or is"
                    " encrypted"
                )
            self.file.seek(member.header_offset)
            header = self.file.read(_LOCAL_HEADER)
            if len(header) != _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
                raise CheckpointError(
                    f"truncated or altered: the header of the member {shown(member.filename)}"
                )
            name_size, extra_size = struct.unpack("<HH", header[26:30])
            encoding = "utf-8" if member.flag_bits & 0x800 else "cp437"
            if self.file.read(name_size) != member.orig_filename.encode(encoding):
                raise CheckpointError(
                    f"altered: the member {shown(member.filename)} has another name in its header"
                )
            starts[member.filename] = start = member.header_offset + _LOCAL_HEADER + name_size + extra_size
            end = start + member.compress_size
            is_stored = member.compress_type == zipfile.ZIP_STORED
            if end > size or is_stored and member.compress_size != member.file_size:
                raise CheckpointError(
                    f"truncated or altered: the member {shown(member.filename)} does not lie within the file"
                )
        return starts

    def is_as_saved(self) -> bool:
        """Whether no member is packed, and nothing lies before the members or after the directory."""
        first = min(member.header_offset for member in self.members.values())
        self.file.seek(-len(_END), os.SEEK_END)
        are_stored = all(m.compress_type == zipfile.ZIP_STORED for m in self.members.values())
        return first == 0 and are_stored and self.file.read(4) == _END[:4]

    def member(self, name: str) -> Any:
        try:
            return self.members[self.prefix + name]
        except KeyError:
            raise CheckpointError(
                f"truncated or altered: there is no member {shown(self.prefix + name)}"
            ) from None

    def read_into(self, name: str, view: Any) -> None:
        """Fill `view` with a member's bytes, and compare its CRC-32."""
        member = self.member(name)
        if member.compress_type == zipfile.ZIP_STORED:
            self.file.seek(self.starts[member.filename])
            fill(self.file, view)
            if self._check_crc and zlib.crc32(view) != member.CRC:
                raise CheckpointError(
                    f"truncated or altered (the CRC-32 of {shown(member.filename)} is another one). If it was"
                    " written with torch.serialization.set_crc32_options(False), load it with"
                    " check_crc=False"
                )
            return
        with self.zip.open(member) as unpacked:
            fill(unpacked, view)
            if unpacked.read(1):
                raise CheckpointError(
                    f"altered: the member {shown(member.filename)} is longer than its directory says"
                )

    def read(self, name: str, budget: Budget) -> bytes:
        """Return the bytes of a small member."""
        size = self.member(name).file_size
        budget.charge_data(size, f"the member {shown(name)}")
        body = bytearray(size)
        self.read_into(name, memoryview(body))
        return bytes(body)


def fill(file: IO[bytes], view: memoryview) -> None:
    """Fill a memoryview from a file. Raise CheckpointError if the file ends before."""
    done = 0
    while done < len(view):
        chunk = file.read(min(_CHUNK, len(view) - done))
        if not chunk:
            raise CheckpointError(f"truncated: {len(view)} bytes are announced, {done} are there")
        view[done : done + len(chunk)] = chunk
        done += len(chunk)


def load_zip(
    file: IO[bytes],
    size: int,
    map_location: Any = None,
    find_shell: FindShell | None = None,
    check_crc: bool = True,
    mapped: str | None = None,
    encoding: str = "utf-8",
) -> Any:
    """Return the object in a torch zip file. `mapped`: the path of a file to map into memory."""
    archive = open_archive(file, size, check_crc)
    return load_archive(archive, size, map_location, find_shell, mapped, encoding)


def load_archive(
    archive: Archive,
    size: int,
    map_location: Any = None,
    find_shell: FindShell | None = None,
    mapped: str | None = None,
    encoding: str = "utf-8",
    names: Container[str] | None = None,
) -> Any:
    """Return the object in an archive. `names`: the only names that its pickle may ask for."""
    pickle_size = archive.member("data.pkl").compress_size
    restore = _restorer(map_location)
    budget = Budget(size, pickle_size, restore_tensor=_tensor_restorer(restore))
    storages = _ZipStorages(archive, budget, None if _is_meta(map_location) else restore)
    if mapped is not None:
        storages.mapped = torch.UntypedStorage.from_file(mapped, False, size)
    body = archive.read("data.pkl", budget)
    value = _Reader(io.BytesIO(body), len(body), budget, storages.storage, find_shell, encoding, names).load()
    budget.finish()
    return value


class _ZipStorages:
    """The storages of a torch zip file, each read once. Without `restore` they are on the device "meta"."""

    def __init__(self, archive: Archive, budget: Budget, restore: Callable[..., Any] | None) -> None:
        self.archive, self.budget, self.restore = archive, budget, restore
        self.mapped: Any = None  # the file as one storage, mapped into memory
        self._storages: dict[str, torch.UntypedStorage] = {}
        has_order = archive.prefix + "byteorder" in archive.members
        self._order = archive.read("byteorder", budget) if has_order else b"little"
        if self._order not in (b"little", b"big"):
            raise CheckpointError(f"altered: its byte order is {shown(self._order)}")

    def storage(self, dtype: Any, key: Any, location: Any, count: Any, view: Any) -> Any:
        """Return the storage of a persistent id."""
        if key not in self._storages:
            size = self.archive.member(f"data/{key}").file_size
            if size != count * dtype.itemsize:
                raise CheckpointError(
                    f"truncated or altered: the storage {shown(key)} has {size} bytes, its pickle says"
                    f" {shown(count)} of"
                    f" {dtype}"
                )
            if self.restore is None:
                self._storages[key] = torch.UntypedStorage(size, device="meta")
            else:
                self._storages[key] = self.restore(self._read(dtype, key), location)
        return _typed(self._storages[key], dtype)

    def _read(self, dtype: Any, key: Any) -> Any:
        member = self.archive.member(f"data/{key}")
        is_stored = member.compress_type == zipfile.ZIP_STORED
        if self.mapped is not None and is_stored:
            start = self.archive.starts[member.filename]
            return self.mapped[start : start + member.file_size]
        if not is_stored:
            self.budget.charge_data(member.file_size, f"the packed member {shown(member.filename)}")
        untyped, view = _fresh(member.file_size)
        self.archive.read_into(f"data/{key}", view)
        if self._order.decode() != sys.byteorder:
            untyped.byteswap(dtype)
        return untyped


def _tensor_restorer(restore: Callable[..., Any]) -> Callable[..., Any]:
    """Return the variant of `restore` for a tensor that has no storage in the file."""

    def restore_tensor(tensor: torch.Tensor, location: Any) -> Any:
        return tensor.to(restore(torch.UntypedStorage(0), location).device)

    return restore_tensor


def open_archive(file: IO[bytes], size: int, check_crc: bool = True) -> Archive:
    """Open a torch zip file of `size` bytes, and check its directory."""
    try:
        return Archive(file, size, check_crc)
    except (zipfile.BadZipFile, NotImplementedError, struct.error) as error:
        raise CheckpointError(f"truncated or altered ({reason(error)})") from None


# --------------------------------------------------------------------------- the stream of before 2020
def load_stream(
    file: IO[bytes],
    size: int,
    map_location: Any = None,
    find_shell: FindShell | None = None,
    encoding: str = "utf-8",
) -> Any:
    """Return the object in a torch file written before 2020: five pickles, then the values of the
    storages.
    """
    restore = _restorer(map_location)
    budget = Budget(size, late_values=True, restore_tensor=_tensor_restorer(restore))
    storages = _StreamStorages(file, size, None if _is_meta(map_location) else restore)

    def load() -> Any:
        return _Reader(file, storages.left(), budget, storages.storage, find_shell, encoding).load()

    if load() != _MAGIC or load() != _PROTOCOL:
        raise CheckpointError("truncated or altered: it does not begin as a torch file of before 2020")
    load()  # sizes of C types on the machine that wrote the file
    value = load()
    storages.read_values(load())
    budget.finish()
    return value


class _StreamStorages:
    """The storages of a torch file written before 2020. Their values follow after the pickles. Without
    `restore` they are on the device "meta".
    """

    def __init__(self, file: IO[bytes], size: int, restore: Callable[..., Any] | None) -> None:
        self.file, self.restore, self._end = file, restore, file.tell() + size
        self._storages: dict[str, tuple[torch.UntypedStorage, torch.dtype, int]] = {}
        self._declared = 0  # bytes

    def left(self) -> int:
        return self._end - self.file.tell()

    def storage(self, dtype: Any, key: Any, location: Any, count: Any, view: Any) -> Any:
        """Return the storage of a persistent id, still without values."""
        if key not in self._storages:
            nbytes = count * dtype.itemsize
            self._declared += nbytes
            if self._declared > self.left():
                raise CheckpointError(
                    f"truncated or altered: the storage {shown(key)} has {shown(count)} of {dtype},"
                    f" {self.left()}"
                    " bytes"
                    " are left"
                )
            if self.restore is None:
                untyped = torch.UntypedStorage(nbytes, device="meta")
            else:
                zeros: Any = torch.UntypedStorage(nbytes)
                untyped = self.restore(zeros.fill_(0), location)
            self._storages[key] = untyped, dtype, nbytes
        return _typed(_part(self._storages[key][0], dtype, view), dtype)

    def read_values(self, keys: Any) -> None:
        """Read the values of all storages, in the order of `keys`."""
        keys = [_text(key) for key in keys] if type(keys) is list else []  # bytes, with encoding="bytes"
        if set(keys) != self._storages.keys() or len(keys) != len(self._storages):
            raise CheckpointError(
                "truncated or altered: the list of its storages differs from those that its tensors name"
            )
        for key in keys:
            _read_storage(self.file, *self._storages[key], key)


def _part(untyped: torch.UntypedStorage, dtype: Any, view: Any) -> torch.UntypedStorage:
    """Return the part of a storage for a view (key, offset, count)."""
    if view is None:
        return untyped
    if type(view) is not tuple or len(view) != 3 or any(type(n) is not int or n < 0 for n in view[1:]):
        raise CheckpointError(f"altered: the part of a storage is {shown(view)}")
    begin, end = view[1] * dtype.itemsize, (view[1] + view[2]) * dtype.itemsize
    if end > untyped.nbytes():
        raise CheckpointError(f"altered: bytes {begin}..{end} of a storage of {untyped.nbytes()}")
    return untyped[begin:end]


def _read_storage(file: Any, untyped: torch.UntypedStorage, dtype: Any, nbytes: int, key: Any) -> None:
    head = file.read(8)
    if len(head) != 8 or struct.unpack("<q", head)[0] * dtype.itemsize != nbytes:
        raise CheckpointError(
            f"truncated or altered: the values of the storage {shown(key)} are not {shown(nbytes)} bytes of"
            f" {dtype}"
        )
    fresh, view = _fresh(nbytes)
    fill(file, view)
    if untyped.device.type != "meta":
        untyped.copy_(fresh)


def is_stream(head: bytes) -> bool:
    """Whether a file begins with torch's magic number, pickled by protocol 2 or newer."""
    at = head.find(_LONG_MAGIC)
    return 2 <= at <= 11 and head[:1] == pickle.PROTO


_LONG_MAGIC = bytes.fromhex("8a0a6cfc9c46f9206aa85019")
