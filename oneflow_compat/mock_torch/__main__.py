"""python -m oneflow.mock_torch [--lazy] [--verbose] SCRIPT [ARGS]   runs SCRIPT with torch mocked
eval $(python -m oneflow.mock_torch enable)                          the same for every python of this shell
eval $(python -m oneflow.mock_torch disable)                         and back
"""
from __future__ import annotations

import os
import runpy
import sys


def main(argv):
    options = {"--lazy": False, "--verbose": False}
    while argv and argv[0] in options:
        options[argv.pop(0)] = True
    startup = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != startup]
    if not argv or argv[0] == "enable":
        print(f"export PYTHONPATH={os.pathsep.join([startup, *others])}")
    elif argv[0] == "disable":
        print(f"export PYTHONPATH={os.pathsep.join(others)}")
    elif argv[0] in ("-h", "--help"):
        print(__doc__, end="")
    elif not os.path.exists(argv[0]):
        sys.stderr.write(f"python -m oneflow.mock_torch: there is no script {argv[0]}\n")
        raise SystemExit(2)
    else:
        from . import enable

        sys.argv = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        with enable(lazy=options["--lazy"], verbose=options["--verbose"]):
            runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
