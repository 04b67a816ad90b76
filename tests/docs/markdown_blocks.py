"""Extract the Python blocks of a Markdown page and run them as one program."""

import re
import sys
import types
import unittest
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^([ ]*)```(\w*)[^\n]*\n(.*?)^\1```[ ]*$", re.S | re.M)
NOT_RUN = re.compile(r"<!-- not run: (\S.*?) -->\s*$")
FILE = re.compile(r"<!-- file: (\S+) -->\s*$")


@dataclass(frozen=True)
class Block:
    source: str
    line: int  # of the page, counted from 1, where the source begins
    reason: str  # why the block is not run, or ""
    file: str = ""  # the page says to save the block as this file


def python_blocks(markdown):
    blocks = []
    for fence in FENCE.finditer(markdown):
        indent, language, source = fence.groups()
        if language in ("python", "py"):
            marker, file = (m.search(markdown[: fence.start()]) for m in (NOT_RUN, FILE))
            source = re.sub(rf"^{indent}", "", source, flags=re.M)
            line = markdown.count("\n", 0, fence.start()) + 2
            blocks.append(Block(source, line, marker[1] if marker else "", file[1] if file else ""))
    return blocks


def run_test_classes(classes):
    for case in classes:
        outcome = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(outcome)
        failures = outcome.failures + outcome.errors
        assert outcome.testsRun and not failures, "\n".join(trace for _, trace in failures)


def run_page(page, modules=sys.modules):
    """Run the blocks of a page as one program, each with the unittest classes that it defines.

    A block that the page says to save is written to the working folder.

    The program's module is entered in `modules`, so that its classes can be pickled. Line numbers of errors
    are those of the page.
    """
    module = types.ModuleType("page_" + re.sub(r"\W", "_", page.stem))
    modules[module.__name__] = module
    for block in python_blocks(page.read_text(encoding="utf-8")):
        if block.reason:
            continue
        if block.file:
            Path(block.file).write_text(block.source, encoding="utf-8")
            continue
        earlier = set(map(id, vars(module).values()))
        exec(compile("\n" * (block.line - 1) + block.source, str(page), "exec"), module.__dict__)
        run_test_classes(
            [
                value
                for value in vars(module).values()
                if isinstance(value, type)
                and id(value) not in earlier
                and issubclass(value, unittest.TestCase)
                and value.__module__ == module.__name__
            ]
        )
