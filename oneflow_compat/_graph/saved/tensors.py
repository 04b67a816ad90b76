"""tensors.pt of a saved graph: torch's zip format, checked before torch reads it.

torch.load(weights_only=True) constructs more than tensors (a bytearray of any size, classes that the user has
allowed for other files), unpacks compressed members and does not compare checksums. A graph's file needs none
of these, so a file that has them is refused.
"""

from __future__ import annotations

import os
import pickle
import pickletools
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

import torch

from .reader import PackageError, is_one_line, shown

MapLocation = Callable[[Any, str], Any] | torch.device | str | dict[str, str] | None  # as in torch.load

_OPCODES = frozenset(
    "PROTO EMPTY_DICT EMPTY_TUPLE EMPTY_LIST MARK TUPLE TUPLE1 TUPLE2 TUPLE3 APPEND APPENDS SETITEM SETITEMS"
    " GLOBAL REDUCE BINPERSID BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE NEWFALSE NONE BINPUT"
    " LONG_BINPUT BINGET LONG_BINGET STOP".split()
)
_NAMES = {
    "collections OrderedDict",
    "torch.serialization _get_layout",
    "torch.storage UntypedStorage",
    "torch Size",
    *(
        f"torch._utils _rebuild_{form}"
        for form in ("tensor_v2", "tensor_v3", "sparse_tensor", "meta_tensor_no_storage")
    ),
    *(
        f"torch {dtype}Storage"
        for dtype in (
            "Double Float Half BFloat16 Long Int Short Char Byte Bool ComplexDouble ComplexFloat".split()
        )
    ),
    *(str(value).replace(".", " ") for value in vars(torch).values() if isinstance(value, torch.dtype)),
}
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    NotImplementedError,
    AttributeError,
    AssertionError,
    RecursionError,
    MemoryError,
    OverflowError,
)


def write_tensors(tensors: dict[str, torch.Tensor], file: IO[bytes]) -> None:
    """Write {key: tensor} into an open file, always with checksums, which a user may have switched off for
    torch.save.
    """
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(True)
    try:
        torch.save(tensors, file)
    finally:
        torch.serialization.set_crc32_options(before)


def read_tensors(file: IO[bytes], location: str, map_location: MapLocation = None) -> dict[str, torch.Tensor]:
    """Return {key: tensor} of an open file."""
    try:
        _check_zip(file, location)
        file.seek(0)
        tensors = torch.load(file, map_location=map_location, weights_only=True)
    except PackageError:
        raise
    except _DAMAGE as error:
        reason = "".join(str(error).splitlines()[:1])[:300]
        raise PackageError(
            f"{location} cannot be read; it is damaged, or of a device that is not here (map_location= names"
            f" another): {reason}"
        ) from None
    if type(tensors) is not dict:
        raise PackageError(
            f"{location} is damaged: it holds a {type(tensors).__name__} in place of a dict of tensors; save"
            " the graph again"
        )
    for key, value in tensors.items():
        if type(key) is not str or not is_one_line(key) or not isinstance(value, torch.Tensor):
            raise PackageError(
                f"{location} is damaged: it holds {shown(key)}: {type(value).__name__} in place of a text and"
                " a tensor; save the graph again"
            )
    return tensors


def _check_zip(file: IO[bytes], location: str) -> None:
    """Raise unless the file is a zip file as torch writes it: stored members with correct checksums, from the
    first byte to the last.
    """

    def damaged(what: str) -> PackageError:
        return PackageError(f"{location} is damaged: {what}; save the graph again")

    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 22, 0))
    if file.read(4) != b"PK\5\6":
        raise damaged("it is no zip file of torch.save, or is cut off")
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [m.filename for m in members]
        are_distinct = len(set(names)) == len(names) and sum(m.file_size for m in members) <= size
        if not are_distinct or min((m.header_offset for m in members), default=1):
            raise damaged("its members overlap, have one name, or lie behind something else")
        if any(m.compress_type != zipfile.ZIP_STORED for m in members):
            raise damaged("it has compressed members, which graph.save() never writes")
        changed = archive.testzip()
        if changed:
            raise damaged(f"{shown(changed)} in it is not as it was written")
        pickles = [n for n in names if n.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise damaged(f"it has {len(pickles)} members data.pkl in place of one")
        _check_pickle(archive.read(pickles[0]), location)


def _check_pickle(data: bytes, location: str) -> None:
    """Raise unless a pickle builds only tensors in a dict."""
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise PackageError(
                f"{location} is refused: its pickle has the instruction {opcode.name}, which graph.save never"
                " writes"
            )
        if opcode.name == "GLOBAL" and argument not in _NAMES:
            raise PackageError(
                f"{location} is refused: it asks for {shown(argument)}, and a saved graph holds tensors only"
            )
        if opcode.name in ("LONG_BINPUT", "LONG_BINGET") and argument > len(data):
            raise PackageError(
                f"{location} is damaged: its pickle numbers a value {argument}; save the graph again"
            )
