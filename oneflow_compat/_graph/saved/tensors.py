"""tensors.pt of a saved graph: torch's zip format, read by the unpickler of this package.

The file holds tensors in a dict and nothing else: the unpickler constructs only these, also if the user has
allowed classes for other files. A graph's file has no packed members and a checksum for each member, so a
file that lacks them is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any

import torch

from ..._file_safety import torch_file
from ..._file_safety.errors import CheckpointError, named_errors
from ..._file_safety.shown import plain_text, shown
from .reader import PackageError, is_one_line

# torch.load takes the same
MapLocation = Callable[[Any, str], Any] | torch.device | str | dict[str, str] | None

_NAMES = {
    "collections.OrderedDict",
    "torch.serialization._get_layout",
    "torch.storage.UntypedStorage",
    "torch.Size",
    *(
        f"torch._utils._rebuild_{form}"
        for form in ("tensor_v2", "tensor_v3", "sparse_tensor", "meta_tensor_no_storage")
    ),
    *(
        f"torch.{dtype}Storage"
        for dtype in (
            "Double Float Half BFloat16 Long Int Short Char Byte Bool ComplexDouble ComplexFloat".split()
        )
    ),
    *(str(value) for value in vars(torch).values() if isinstance(value, torch.dtype)),
}


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
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        with named_errors(location):
            archive = torch_file.open_archive(file, size)
            if not archive.is_as_saved():
                raise CheckpointError(
                    "altered: graph.save() writes no packed members, and nothing around them"
                )
            tensors = torch_file.load_archive(archive, size, map_location, names=_NAMES)
    except CheckpointError as error:
        raise PackageError(
            f"{location} cannot be read; it is damaged, or of a device that is not here (map_location= names"
            f" another): {_defect(error, location)}; save the graph again"
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


def _defect(error: CheckpointError, location: str) -> str:
    """Return what a reader of torch's files says, without its advice: a graph has no weights_only=False."""
    return plain_text(str(error).removeprefix(f"{location}: ").partition(". If you trust the file")[0])
