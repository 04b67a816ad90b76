"""python -m oneflow.report SCRIPT: run a script, and tell what ran where.

The report lists the graphs that ran, with their calls as programs and in eager mode, and the reasons. It
lists the names of oneflow and torch in the files that ran, and the differences that concern them.

Names are read from the source text of these files (see oneflow.scan), calls of graphs are counted while the
script runs. Nothing is measured unless a script runs under this command.
"""

from .graphs import GraphRecord, GraphRecorder, Reason
from .names import NameUse, names_of_run
from .text import as_json, as_text

__all__ = ["GraphRecord", "GraphRecorder", "NameUse", "Reason", "as_json", "as_text", "names_of_run"]
