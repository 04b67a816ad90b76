"""Run the scripts of a folder, each with its buggy library and again with the library without the bug; print
the outcomes as JSON.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

from planted_bugs import BUGS


def outcome(source, library):
    """Return "no difference", another last line, or the error that the script raised."""
    sys.modules["buggy"] = library
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "script", "exec"), {"__name__": "__main__"})
    except SystemExit as e:
        assert not e.code, e.code
    except BaseException as e:
        return f"{type(e).__name__}: {e}"
    return printed.getvalue().strip().rpartition("\n")[2]


if __name__ == "__main__":
    outcomes = {}
    for file in sorted(Path(sys.argv[1]).glob("*.py")):
        bug = BUGS[file.stem]
        outcomes[file.stem] = [outcome(file.read_text(), library) for library in (bug.library, bug.faithful)]
    print(json.dumps(outcomes))
