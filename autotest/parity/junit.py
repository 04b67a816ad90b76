"""The cells of a run as test cases of a JUnit file."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from .header import Header
from .table import COLUMNS, Row, status

# "identity" is no check, and "cpu" repeats "eager".
CHECKED = tuple(c for c in COLUMNS if c not in ("identity", "cpu"))
# XML 1.0 has no other control characters.
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(rows: list[Row], path: str | Path, header: Header) -> None:
    """Write a test case for each cell that was run, and one for each name that was left out.

    A documented difference passes, and its detail is the output of the test case.
    """
    suite = ElementTree.Element("testsuite", name="parity", timestamp=header["date"])
    suite.set("time", str(header["seconds"]))
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in header.items():
        if not isinstance(value, dict):
            ElementTree.SubElement(properties, "property", name=key, value=str(value))
    for row in rows:
        if row["left_out"]:
            case = ElementTree.SubElement(suite, "testcase", classname="left out", name=row["name"])
            ElementTree.SubElement(case, "skipped", message=_clean(row["left_out"]))
        for column in CHECKED:
            if status(row, column) != "none":
                case = ElementTree.SubElement(suite, "testcase", classname=column, name=row["name"])
                _add_outcome(case, row["cells"][column])
    for name, tag in (("failures", "failure"), ("skipped", "skipped"), ("tests", "testcase")):
        suite.set(name, str(len(list(suite.iter(tag)))))
    suite.set("errors", "0")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def _add_outcome(case: ElementTree.Element, cell: dict[str, str]) -> None:
    detail = _clean(cell.get("detail", ""))
    if cell["status"] == "fail":
        failure = ElementTree.SubElement(case, "failure", message=detail.partition("\n")[0])
        failure.text = f"{detail}\n\n{_clean(cell.get('script', ''))}"
    elif cell["status"] == "refused":
        ElementTree.SubElement(case, "skipped", message=f"the graph refuses it: {detail}")
    elif cell["status"] == "differs":
        ElementTree.SubElement(case, "system-out").text = detail


def _clean(text: str) -> str:
    return FORBIDDEN.sub("?", text)
