"""Run the examples of torch's docstrings and print the result of each statement as JSON: `python
docstrings.py torch|mock PART PARTS`.

With "mock" the names come from oneflow under mock_torch. Each docstring runs in a separate process.
"""

import ast
import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile

MODULES = """
    torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn
    torch.nn.utils.parametrizations torch.nn.utils.parametrize torch.nn.utils.prune torch.optim
    torch.optim.lr_scheduler torch.optim.swa_utils torch.autograd torch.autograd.functional
    torch.autograd.forward_ad torch.autograd.graph torch.linalg torch.fft torch.special torch.distributions
    torch.distributions.transforms torch.distributions.constraints torch.func torch.sparse torch.utils.data
    torch.utils.checkpoint torch.utils.hooks torch.random torch.amp torch.fx torch.jit torch.nested
    torch.masked torch.signal.windows torch.profiler torch.overrides torch.nn.attention torch.export
    torch.library torch.testing torch.futures torch.package torch.utils.dlpack torch.utils.benchmark
    torch.utils._pytree
""".split()


def examples():
    """{name: statements} of every docstring with examples, once each."""
    import torch

    statements_of, seen = {}, set()

    def take(name, thing):
        text = getattr(thing, "__doc__", None)
        if isinstance(text, str) and ">>>" in text and text not in seen:
            seen.add(text)
            with contextlib.suppress(ValueError):  # an example that is not indented as one
                statements_of[name] = [e.source for e in doctest.DocTestParser().get_examples(text)]

    for path in MODULES:
        module = importlib.import_module(path)
        for name in [n for n in dir(module) if not n.startswith("_")]:
            thing = getattr(module, name)
            if not inspect.ismodule(thing):
                take(f"{path}.{name}", thing)
            if inspect.isclass(thing):
                for inner in [n for n in vars(thing) if not n.startswith("_")]:
                    take(f"{path}.{name}.{inner}", getattr(thing, inner, None))
    for name in [n for n in dir(torch.Tensor) if not n.startswith("_")]:
        take(f"torch.Tensor.{name}", getattr(torch.Tensor, name))
    return {name: statements for name, statements in statements_of.items() if statements}


def results(statements, mock):
    """(value, what was printed) of each statement; an exception is its class and text."""
    if mock:
        import oneflow.mock_torch

        oneflow.mock_torch.enable()
    import numpy as np
    import torch

    torch.manual_seed(0)
    names, outcomes = (
        {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np, "__name__": "__main__"},
        [],
    )
    for statement in statements:
        printed, value = io.StringIO(), None
        with contextlib.redirect_stdout(printed):
            try:
                tree = ast.parse(statement)
                last = tree.body.pop().value if isinstance(tree.body[-1], ast.Expr) else None
                exec(compile(tree, "<example>", "exec"), names)
                value = (
                    None
                    if last is None
                    else repr(eval(compile(ast.Expression(last), "<example>", "eval"), names))
                )
            except Exception as error:
                value = f"{type(error).__name__}: {error}"
        outcomes.append(
            [
                re.sub(r"0x[0-9a-f]+|/tmp/\w+", "", t).replace("oneflow", "torch") if t else t
                for t in (value, printed.getvalue())
            ]
        )
    return outcomes


def apart(statements, mock):
    """results() in a process of its own, in a folder of its own; processes that the examples leave behind end
    with it.
    """
    folder = tempfile.mkdtemp()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.alarm(60)
        sys.stderr = io.StringIO()
        os.chdir(folder)
        outcomes = results(statements, mock)
        with open("results.json", "w") as out:
            json.dump(outcomes, out)
        os._exit(0)
    os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    try:
        with open(os.path.join(folder, "results.json")) as out:
            return json.load(out)
    except (OSError, ValueError):
        return ["the process ended early"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    which, part, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chosen = list(examples().items())[part::parts]
    if which == "mock":
        import oneflow.mock_torch  # noqa: F401  (once, not in every process)
    json.dump({name: apart(statements, which == "mock") for name, statements in chosen}, sys.stdout)
