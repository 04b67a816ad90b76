"""Save a sharded checkpoint: the ranks agree on a plan, each writes its file, rank 0 replaces the index."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ... import _processes
from ..._file_safety import atomic
from ..._global.collectives import checking, nested
from ..._global.failures import transfer
from ..._global.marks import several
from ..._global.store_agreement import Agreement
from . import background, index, plan, shard_files
from .plan import Description, Plan
from .shard_files import Part
from .tensors import local_values

_OWN_FILE = re.compile(r"rank-\d+-of-\d+-[0-9a-f]{8}\.safetensors")
_OTHERS = ("pickled_data", "program.json", ".metadata")  # files of folders in other layouts


def save(obj: object, folder: str, asynchronous: bool) -> background.PendingSave | None:
    """Save an object from all ranks. Every rank raises, or none."""
    background.finish_last()
    folder = os.path.abspath(folder)
    target = _Target(folder)
    try:
        job = _planned(obj, target, asynchronous)
    except BaseException:
        target.release()
        raise
    if not asynchronous or job.failure is not None:
        job.run()
        return None
    return background.start(job.run)


class _Target:
    """The folder of a save. Rank 0 locks it: processes that save to one folder wait for each other."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.token = secrets.token_hex(4)  # part of the file names; every rank uses the token of rank 0
        self._is_new = False
        self._unlock: Callable[[], None] | None = None

    def prepare(self) -> None:
        """Create the folder, check what is there, and lock it."""
        if os.path.exists(self.folder) and not os.path.isdir(self.folder):
            raise FileExistsError(
                f"save: {self.folder!r} is a file; layout='sharded' needs a folder or a new name"
            )
        for name in _OTHERS:
            if os.path.lexists(os.path.join(self.folder, name)):
                raise FileExistsError(
                    f"save: {self.folder!r} has a checkpoint of another layout ({name}); choose another"
                    " folder"
                )
        if _processes.get_rank() == 0:
            self._is_new = not os.path.isdir(self.folder)
            os.makedirs(self.folder, exist_ok=True)
            self._unlock = atomic.lock_folder(self.folder)

    def release(self) -> None:
        """Unlock the folder, and remove it if this save created it and it is empty."""
        if self._is_new:
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
        if self._unlock is not None:
            self._unlock()


def _planned(obj: object, target: _Target, asynchronous: bool) -> _Job:
    rank, world = _processes.get_rank(), _processes.get_world_size()
    with checking("save", sends=True) as request:
        request.must_match(layout="sharded", path=target.folder, asynchronous=bool(asynchronous))
        describer = plan.Describer(several())
        own = describer.describe(obj)
        target.prepare()
        request.send_message((target.token, own))
    messages = request.messages or [(target.token, own)]
    descriptions: list[Description] = [description for _, description in messages]
    agreed = plan.make(descriptions)
    agreement = Agreement("save", f"checkpoint/{messages[0][0]}")
    tensors = _without_partial_sums(describer.tensors, own)
    job = _Job(target, messages[0][0], rank, world, agreed, agreement)
    try:
        job.parts = _parts_of_rank(agreed, rank, tensors)
        if asynchronous:
            job.parts = background.snapshot(job.parts)
    except BaseException as error:  # the other ranks get to know it when they have written
        job.failure = error
    return job


def _parts_of_rank(agreed: Plan, rank: int, tensors: list[Any]) -> list[Part]:
    """Return what this rank writes, in the order of its file."""
    parts = []
    for chunk in agreed.of_rank(rank):
        values = local_values(tensors[chunk.indices[rank]])
        if tuple(values.shape) != chunk.box.sizes:
            raise RuntimeError(
                f"save: this rank's shard of {chunk.name} has the shape {tuple(values.shape)}; its placement"
                f" and SBP give {chunk.box.sizes}"
            )
        parts.append(Part(chunk.key, values))
    return sorted(parts, key=shard_files.alignment_order)


def _without_partial_sums(tensors: list[Any], own: Description) -> list[Any]:
    """Return the tensors with partial sums summed, in the same order on all ranks."""
    out = []
    with nested(), transfer("save"):
        for tensor, described in zip(tensors, own.tensors):
            if any(rule._kind == "partial_sum" for rule in described.nd_sbp) and described.spread is not None:
                if hasattr(tensor, "redistribute"):  # a DTensor of torch
                    tensor = _replicated(tensor)
                else:
                    tensor = tensor.detach().to_global(sbp=described.spread.nd_sbp)
            out.append(tensor)
    return out


def _replicated(tensor: Any) -> Any:
    from torch.distributed.tensor import Partial, Replicate  # import cost: half a second

    placements = [Replicate() if isinstance(p, Partial) else p for p in tensor.placements]
    return tensor.detach().redistribute(placements=placements)


@dataclass
class _Job:
    """The part of a save that needs no collective calls: a thread can run it."""

    target: _Target
    token: str
    rank: int
    world: int
    plan: Plan
    agreement: Agreement
    parts: list[Part] = field(default_factory=list)
    failure: BaseException | None = None

    def run(self) -> None:
        """Write this rank's file. When all ranks have written theirs, rank 0 replaces the index."""
        folder = self.target.folder
        name = f"rank-{self.rank}-of-{self.world}-{self.token}.safetensors"
        report, failure = None, self.failure
        try:
            if self.parts and failure is None:
                size, checksums = shard_files.write(os.path.join(folder, name), self.parts)
                report = [name, size, {part.key: crc for part, crc in zip(self.parts, checksums)}]
                atomic.sync_folder(folder)
        except BaseException as error:
            failure = error
        self.parts = []
        try:
            self.agreement.settle(report, failure, self._commit)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))
            raise
        finally:
            self.target.release()

    def _commit(self, reports: list[Any]) -> None:
        """Replace the index, and remove the files of former and interrupted saves."""
        files: list[tuple[str, int]] = []
        file_of: dict[int, int] = {}  # rank -> number of its file
        checksums: dict[str, int] = {}
        for rank, report in enumerate(reports):
            if report is not None:
                file_of[rank] = len(files)
                files.append((report[0], report[1]))
                checksums |= report[2]
        entries = self.plan.entries(checksums, file_of)
        data = index.dumps(index.Index(self.world, files, entries, self.plan.tree))
        folder = self.target.folder
        with atomic.replacing(os.path.join(folder, index.INDEX)) as file:
            file.write(data)
        current = {name for name, _ in files}
        for name in os.listdir(folder):
            if _OWN_FILE.fullmatch(name) and name not in current:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))
