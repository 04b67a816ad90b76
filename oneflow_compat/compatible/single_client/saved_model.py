"""flow.saved_model: job functions with their variables in a folder, loadable without their Python code.

<save_path>/<version>/saved_model.json   names, signatures, shapes
<save_path>/<version>/<job>.pt2          each job as a torch.export program
<save_path>/<version>/variables/         the variables as a snapshot
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import torch

from . import checkpoint
from ._jobs import session as _session
from ._jobs.job import _parts
from ._jobs.trace import Trace
from .typing import _Placeholder

if TYPE_CHECKING:
    from typing import Any


META = "saved_model"


def Lbn2Lbi(lbn: str, lbi: Any = None) -> Any:
    """(operator name, blob name) of "op/blob"."""
    op, _, blob = lbn.partition("/")
    if not op or not blob:
        raise ValueError(f'a blob name looks like "op/blob", found {lbn!r}')
    return op, blob


def Lbi2Lbn(lbi: Any) -> Any:
    return f"{lbi[0]}/{lbi[1]}"


def GetInterfaceBlobConf(job_name: str, lbn: str, blob_conf: Any = None) -> Any:
    """{"shape": ..., "dtype": ...} of an input of a defined job."""
    job = _session.default().jobs[job_name]
    job.define()
    index = int(Lbn2Lbi(lbn)[0].removeprefix("Input_"))
    declared = _placeholders(job)[index]
    return {"shape": list(declared.shape), "dtype": str(declared.dtype).removeprefix("torch.")}


def _placeholders(job: Any) -> Any:
    def walk(d: Any) -> Any:
        if isinstance(d, _Placeholder):
            return [d]
        return [p for part in (d.values() if isinstance(d, dict) else _parts(d)) for p in walk(part)]

    return [p for _, d in job.inputs for p in walk(d)]


class ModelBuilder:
    """Builder of a saved model.

    ModelBuilder(path).ModelName(name).Version(1).AddFunction(job).AddSignature(s).Input(...).Output(...) ...
    .Save().
    """

    def __init__(self, save_path: Any) -> None:
        self._path, self._name, self._version, self._graphs = save_path, "model", 1, {}
        self._default_graph = None

    def ModelName(self, model_name: Any) -> Any:
        self._name = model_name
        return self

    def Version(self, version: Any) -> Any:
        self._version = int(version)
        return self

    def AddFunction(self, func: Any) -> Any:
        """A predict job function; gives its GraphBuilder."""
        if func.name in self._graphs:
            raise ValueError(f"ModelBuilder: the function {func.name!r} was added already")
        if func.job_type != "predict":
            raise ValueError(f'ModelBuilder: {func.name!r} is a train job; save a job of type "predict"')
        self._graphs[func.name] = GraphBuilder(func.name, self)
        self._graphs[func.name].job = func
        return self._graphs[func.name]

    @property
    def proto(self) -> Any:
        """The description as a dict (what saved_model.json holds)."""
        graphs = {n: g.proto for n, g in self._graphs.items()}
        return {
            "name": self._name,
            "version": self._version,
            "default_graph": self._default_graph or next(iter(graphs), None),
            "graphs": graphs,
        }

    def Save(self, save_model_before_graph_complete: bool = True) -> Any:
        """Write everything. An existing version is an error."""
        folder = os.path.join(self._path, str(self._version))
        if os.path.exists(folder):
            raise FileExistsError(f"ModelBuilder.Save: {folder!r} exists already; give another Version")
        if not self._graphs:
            raise ValueError("ModelBuilder.Save: add a job function first (AddFunction)")
        unfinished = [n for n, g in self._graphs.items() if not g.finished]
        if unfinished and not save_model_before_graph_complete:
            raise ValueError(f"ModelBuilder.Save: the graphs {unfinished} are not finished; call Finish()")
        os.makedirs(folder)
        for name, graph in self._graphs.items():
            graph.Finish()
            _export(graph.job, os.path.join(folder, f"{name}.pt2"))
        with open(os.path.join(folder, META + ".json"), "w", encoding="utf8") as f:
            json.dump(self.proto, f, indent=1)
        checkpoint.save(os.path.join(folder, "variables"))
        return self


class GraphBuilder:
    """One job function of a model."""

    def __init__(self, name: str, model_builder: Any = None) -> None:
        self._name, self._owner, self._signatures, self._finished, self.job = (
            name,
            model_builder,
            {},
            False,
            None,
        )
        self._default = None

    name = property(lambda self: self._name)
    finished = property(lambda self: self._finished)

    def OwnerModelBuilder(self) -> Any:
        return self._owner

    def AddSignature(self, signature_name: Any) -> Any:
        if signature_name in self._signatures:
            raise ValueError(f"GraphBuilder: the signature {signature_name!r} was added already")
        self._signatures[signature_name] = SignatureBuilder(signature_name, self)
        return self._signatures[signature_name]

    def AsDefault(self) -> Any:
        self._owner._default_graph = self.name
        return self

    def Finish(self) -> Any:
        """Check the signatures' blob names against the job."""
        if not self._finished:
            self.job.define()
            num_inputs = len(_placeholders(self.job))
            for s in self._signatures.values():
                for name, lbn in s.inputs.items():
                    index = Lbn2Lbi(lbn)[0].removeprefix("Input_")
                    if not index.isdigit() or int(index) >= num_inputs:
                        raise ValueError(
                            f"signature {s.name!r}: input {name!r} is {lbn!r}, which is no input of job"
                            f" {self.name}"
                        )
                for name, lbn in s.outputs.items():
                    if lbn not in self.job.output_names:
                        raise ValueError(
                            f"signature {s.name!r}: output {name!r} is {lbn!r}; job {self.name} returns"
                            f" {self.job.output_names}"
                        )
            self._finished = True
        return self._owner

    @property
    def proto(self) -> Any:
        return {
            "inputs": [
                {
                    "name": n,
                    "lbn": f"Input_{i}/out",
                    "shape": list(p.shape),
                    "dtype": str(p.dtype).removeprefix("torch."),
                }
                for i, (n, p) in enumerate(_input_names(self.job))
            ],
            "outputs": list(self.job.output_names),
            "variables": list(self.job.session.variables),
            "default_signature": self._default or next(iter(self._signatures), None),
            "signatures": {n: s.proto for n, s in self._signatures.items()},
        }


def _input_names(job: Any) -> Any:
    flat = _placeholders(job)
    names = [n for n, _ in job.inputs]
    return (
        list(zip(names, flat)) if len(names) == len(flat) else [(f"Input_{i}", p) for i, p in enumerate(flat)]
    )


class SignatureBuilder:
    """Names of inputs and outputs for callers of the model."""

    def __init__(self, name: str, graph_builder: Any = None) -> None:
        self._name, self._owner, self.inputs, self.outputs = name, graph_builder, {}, {}

    name = property(lambda self: self._name)

    def OwnerGraphBuilder(self) -> Any:
        return self._owner

    def AsDefault(self) -> Any:
        self._owner._default = self.name
        return self

    def Input(self, input_name: str, lbn: str) -> Any:
        Lbn2Lbi(lbn)
        self.inputs[input_name] = lbn
        return self

    def Output(self, output_name: str, lbn: str) -> Any:
        Lbn2Lbi(lbn)
        self.outputs[output_name] = lbn
        return self

    def Complete(self) -> Any:
        return self._owner.OwnerModelBuilder()

    Finish = Save = Complete

    @property
    def proto(self) -> Any:
        return {"inputs": dict(self.inputs), "outputs": dict(self.outputs)}


def _export(job: Any, path: Any) -> None:
    """The job's forward as a torch.export program whose parameters are the variables."""
    variables = dict(job.session.variables)

    class Body(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for index, variable in enumerate(variables.values()):
                self.register_buffer(f"v{index}", variable.tensor.detach())

        def forward(self, *args: Any) -> Any:
            saved = {n: v.tensor for n, v in variables.items()}
            try:
                for index, variable in enumerate(variables.values()):
                    variable.tensor = getattr(self, f"v{index}")
                return tuple(job.body(Trace(job, captured=False), args))
            finally:
                for name, variable in variables.items():
                    variable.tensor = saved[name]

    examples = tuple(torch.zeros(p.shape, dtype=p.dtype) for p in _placeholders(job))
    program = torch.export.export(Body(), examples, strict=False)
    torch.export.save(program, path)


def load(saved_model_dir: Any, model_version: Any = None) -> Any:
    """(description, {job name: callable of tensors}) of a saved model; the newest version if None."""
    versions = sorted(int(v) for v in os.listdir(saved_model_dir) if v.isdigit())
    if not versions:
        raise FileNotFoundError(f"saved_model.load: there is no version in {saved_model_dir!r}")
    version = versions[-1] if model_version is None else int(model_version)
    if version not in versions:
        raise FileNotFoundError(
            f"saved_model.load: version {version} is not in {saved_model_dir!r}; there are {versions}"
        )
    folder = os.path.join(saved_model_dir, str(version))
    with open(os.path.join(folder, META + ".json"), encoding="utf8") as f:
        description = json.load(f)
    return description, {
        name: torch.export.load(os.path.join(folder, f"{name}.pt2")).module()
        for name in description["graphs"]
    }
