"""The structure of the session's jobs as a file."""

import json
import os
import time

from .._jobs import session as _session
from ..experimental import get_job_set


class Graph:
    """Write the jobs with their inputs and variables as JSON; OneFlow's own viewer format is gone."""

    def __init__(self, logdir: str | None = None) -> None:
        if logdir is None:
            raise ValueError("summary.Graph needs a logdir")
        self._logdir = logdir
        self._file: str | None = None

    logdir = property(lambda self: self._logdir)
    structure_graph_filename = property(lambda self: self._file)

    def write_structure_graph(self) -> None:
        _session.default().start()
        os.makedirs(self._logdir, exist_ok=True)
        self._file = os.path.join(self._logdir, f"structure_graph.{int(time.time())}.json")
        variables = {
            n: {"shape": list(v.tensor.shape), "dtype": str(v.tensor.dtype).removeprefix("torch.")}
            for n, v in _session.default().variables.items()
        }
        with open(self._file, "w", encoding="utf8") as f:
            json.dump({**get_job_set(), "variables": variables}, f, indent=1)
