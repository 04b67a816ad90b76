"""python -m oneflow.mock_torch [--lazy] [--verbose] SCRIPT [ARGS]      runs SCRIPT with torch mocked
python -m oneflow.mock_torch [--lazy] [--verbose] -m MODULE [ARGS]   runs MODULE so
eval $(python -m oneflow.mock_torch enable)                          the same for every python of this shell
eval $(python -m oneflow.mock_torch disable)                         and back
"""

import importlib.util
import os
import runpy
import shlex
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .mock_importer import enable


def main(argv: list[str]) -> None:
    options = {"--lazy": False, "--verbose": False}
    while argv and argv[0] in options:
        options[argv.pop(0)] = True
    command = argv[0] if argv else "enable"
    if command in ("enable", "disable"):
        if len(argv) > 1 or any(options.values()):
            _refuse(f"{command} takes no other arguments; --lazy and --verbose belong to a SCRIPT")
        _print_export(command == "enable")
    elif command in ("-h", "--help"):
        print(__doc__, end="")
    elif command == "-m":
        if len(argv) < 2 or not _is_module(argv[1]):
            _refuse(f"there is no module {argv[1]}" if len(argv) > 1 else "-m needs the name of a module")
        _run(runpy.run_module, argv[1], argv[1:], options, alter_sys=True)
    elif not os.path.exists(command):
        _refuse(f"there is no script {command}")
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(command))
        _run(runpy.run_path, command, argv, options)


def _print_export(enables: bool) -> None:
    """Print the shell command that adds the mock's start-up folder to PYTHONPATH or removes it."""
    startup = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [startup] * enables + [path for path in inherited if path and path != startup]
    print(f"export PYTHONPATH={shlex.quote(os.pathsep.join(paths))}")


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _run(
    run: Callable[..., Any], target: str, argv: list[str], options: dict[str, Any], **keywords: Any
) -> None:
    sys.argv = argv
    with enable(lazy=options["--lazy"], verbose=options["--verbose"]):
        run(target, run_name="__main__", **keywords)


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"python -m oneflow.mock_torch: {why}\n")
    raise SystemExit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
