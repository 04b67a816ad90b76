"""InferenceSession: load a saved model, run its jobs by name with arrays by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ...._errors import unsupported
from .. import saved_model
from ..checkpoint import get

if TYPE_CHECKING:
    from typing import Any


class ModelVersionPolicy:
    """Which version of a model to load."""

    LATEST = "latest"


class SessionOption:
    """Device of the session."""

    def __init__(self) -> None:
        self.device_tag, self.device_num, self.is_mirrored_view = "cpu", 1, False


class InferenceSession:
    """A session that runs saved models; also a context manager.

    The steps are load_saved_model(dir), launch(), run(job, input=array) -> {output: array}, close().
    """

    def __init__(self, option: Any = None) -> None:
        self._option = option or SessionOption()
        self._graphs, self._programs, self._signature, self._open_jobs = {}, {}, {}, []
        self._checkpoint = None
        self._running = False
        self.init()

    def init(self) -> None:
        self._closed = False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        """Forget the models."""
        self._graphs, self._programs, self._running, self._closed = {}, {}, False, True

    def _need_open(self) -> None:
        if self._closed:
            raise RuntimeError("this InferenceSession is closed")

    def set_checkpoint_path(self, checkpoint_path: Any) -> None:
        """A snapshot whose values replace the saved variables at launch()."""
        self._checkpoint = checkpoint_path

    def set_job_signature(self, job_name: str, signature: str) -> None:
        """The signature (by name, or its description) that names the inputs and outputs of a job."""
        self._signature[job_name] = (
            self._graphs[job_name]["signatures"][signature] if isinstance(signature, str) else signature
        )

    def set_job_batch_size(self, job_name: str, batch_size: int) -> None:
        """Only the saved batch size runs; another one is an error."""
        saved = (
            self._graphs[job_name]["inputs"][0]["shape"][0]
            if self._graphs[job_name]["inputs"]
            else batch_size
        )
        if batch_size != saved:
            raise unsupported(
                f"set_job_batch_size({job_name!r}, {batch_size}) of a model saved for {saved}",
                "legacy-serving-batch",
                "Save the model with that batch size.",
            )

    def open(self, job_name: str, signature: Any = None, batch_size: int | None = None) -> Any:
        """A with block around the definition of a job.

        The session loads saved models, so the block only applies its arguments.
        """
        import contextlib

        if signature is not None:
            self.set_job_signature(job_name, signature)
        if batch_size is not None:
            self.set_job_batch_size(job_name, batch_size)
        return contextlib.nullcontext(self)

    def compile(self, op_list: Any) -> Any:
        """Operator lists of OneFlow's own saved models cannot be compiled here."""
        raise unsupported(
            "InferenceSession.compile of an operator list",
            "legacy-serving-ops",
            "Save the model with flow.saved_model and load it with load_saved_model.",
        )

    def load_saved_model(
        self,
        saved_model_dir: Any,
        model_version: Any = ModelVersionPolicy.LATEST,
        saved_model_meta_file_basename: str = "saved_model",
        graph_name: Any = None,
        signature_name: Any = None,
    ) -> None:
        """Load the model of a folder; returns nothing.

        `graph_name` and `signature_name` choose among several.
        """
        self._need_open()
        version = None if model_version == ModelVersionPolicy.LATEST else model_version
        if saved_model_meta_file_basename != saved_model.META:
            raise ValueError(
                "load_saved_model: the description is saved_model.json, asked for"
                f" {saved_model_meta_file_basename!r}"
            )
        description, programs = saved_model.load(saved_model_dir, version)
        names = [graph_name] if graph_name else list(description["graphs"])
        for name in names:
            if name not in description["graphs"]:
                raise KeyError(
                    f"load_saved_model: there is no graph {name!r} in {saved_model_dir!r}; there are"
                    f" {sorted(description['graphs'])}"
                )
            graph = description["graphs"][name]
            self._graphs[name], self._programs[name] = graph, programs[name]
            chosen = signature_name or graph["default_signature"]
            if chosen is not None:
                if chosen not in graph["signatures"]:
                    raise KeyError(
                        f"load_saved_model: graph {name!r} has no signature {chosen!r}; it has"
                        f" {sorted(graph['signatures'])}"
                    )
                self._signature[name] = graph["signatures"][chosen]

    def launch(self) -> None:
        """Be ready to run; applies the snapshot of set_checkpoint_path."""
        self._need_open()
        if self._checkpoint is not None:
            self._apply(get(self._checkpoint))
        self._running = True

    def _apply(self, values: Any) -> None:
        for name, program in self._programs.items():
            for index, variable in enumerate(self._graphs[name]["variables"]):
                if variable in values and hasattr(program, f"v{index}"):
                    with torch.no_grad():
                        getattr(program, f"v{index}").copy_(torch.from_numpy(values[variable].numpy()))

    # -- asking ------------------------------------------------------------------
    def list_jobs(self) -> Any:
        return list(self._graphs)

    def _inputs(self, job_name: str) -> Any:
        graph = self._graphs[job_name]
        named = {i["lbn"]: i for i in graph["inputs"]}
        signature = self._signature.get(job_name)
        if signature is not None:
            return {n: named[lbn] for n, lbn in signature["inputs"].items()}
        return {i["name"]: i for i in graph["inputs"]}

    def _outputs(self, job_name: str) -> Any:
        graph = self._graphs[job_name]
        signature = self._signature.get(job_name)
        if signature is not None:
            return {n: graph["outputs"].index(lbn) for n, lbn in signature["outputs"].items()}
        return {lbn: i for i, lbn in enumerate(graph["outputs"])}

    def _all(self, job_name: str | None = None) -> Any:
        return [job_name] if job_name else list(self._graphs)

    def list_inputs(self) -> Any:
        return [n for job in self._graphs for n in self._inputs(job)]

    def list_outputs(self) -> Any:
        return [n for job in self._graphs for n in self._outputs(job)]

    def input_info(self, input_name: str, job_name: str | None = None) -> Any:
        """{"shape": (...), "dtype": numpy type} of an input."""
        import numpy as np

        for job in self._all(job_name):
            blob_info = self._inputs(job).get(input_name)
            if blob_info is not None:
                return {"shape": tuple(blob_info["shape"]), "dtype": np.dtype(blob_info["dtype"]).type}
        raise KeyError(f"there is no input {input_name!r}; there are {self.list_inputs()}")

    def output_info(self, output_name: str, job_name: str | None = None) -> Any:
        """{"shape": (...), "dtype": numpy type} of an output, found by running the job on zeros."""
        import numpy as np

        for job in self._all(job_name):
            if output_name in self._outputs(job):
                zeros = {n: np.zeros(i["shape"], i["dtype"]) for n, i in self._inputs(job).items()}
                value = self._execute(job, zeros)[output_name]
                return {"shape": value.shape, "dtype": value.dtype.type}
        raise KeyError(f"there is no output {output_name!r}; there are {self.list_outputs()}")

    def print_job_set(self) -> None:
        for name in self._graphs:
            print(f"{name}: inputs {sorted(self._inputs(name))}, outputs {sorted(self._outputs(name))}")

    # -- running -----------------------------------------------------------------
    def run(self, job_name: str, **kwargs: Any) -> Any:
        """{output name: array}; the inputs by name."""
        self._need_open()
        if not self._running:
            raise RuntimeError("InferenceSession.run: call launch() first")
        return self._execute(job_name, kwargs)

    def async_run(self, job_name: str, **kwargs: Any) -> Any:
        """A concurrent.futures.Future of run()'s result; jobs run at once, so it is done already."""
        from concurrent.futures import Future

        future: Future[Any] = Future()
        try:
            future.set_result(self.run(job_name, **kwargs))
        except Exception as e:
            future.set_exception(e)
        return future

    def wait_for_all_jobs_finished(self) -> None:
        """Jobs run at once, so there is nothing to wait for."""

    def _execute(self, job_name: str, arrays: Any) -> Any:
        import numpy as np

        inputs = self._inputs(job_name)
        if set(arrays) != set(inputs):
            raise TypeError(f"job {job_name!r} takes the inputs {sorted(inputs)}, got {sorted(arrays)}")
        tensors = {}
        for name, info in inputs.items():
            array = np.ascontiguousarray(arrays[name])
            if array.shape != tuple(info["shape"]) or array.dtype.name != info["dtype"]:
                raise ValueError(
                    f"input {name!r} is {tuple(info['shape'])} {info['dtype']}, got {array.shape}"
                    f" {array.dtype}"
                )
            tensors[info["lbn"]] = torch.from_numpy(array)
        with torch.no_grad():
            results = self._programs[job_name](*[tensors[i["lbn"]] for i in self._graphs[job_name]["inputs"]])
        return {name: results[index].numpy() for name, index in self._outputs(job_name).items()}
