"""The matrix as JUnit XML: one test case per cell that applies."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from .table import COLUMNS, status


def write(rows: list[dict[Any, Any]], path: str | Path) -> None:
    """Write the file."""
    suite = ET.Element("testsuite", name="parity")
    tests = failures = skipped = 0
    for row in rows:
        if row["left_out"]:
            case = ET.SubElement(suite, "testcase", classname=row["group"], name=row["name"])
            ET.SubElement(case, "skipped", message=row["left_out"])
            tests, skipped = tests + 1, skipped + 1
        for column in COLUMNS:
            what = status(row, column)
            if what == "none":
                continue
            cell = row["cells"][column]
            case = ET.SubElement(suite, "testcase", classname=row["group"], name=f"{row['name']} [{column}]")
            tests += 1
            if what == "fail":
                failures += 1
                ET.SubElement(case, "failure", message=cell.get("detail", "")[:500]).text = cell.get(
                    "script", ""
                )
            elif what in ("differs", "refused"):
                skipped += 1
                ET.SubElement(case, "skipped", message=f"{what}: {cell.get('detail', '')[:500]}")
    suite.set("tests", str(tests))
    suite.set("failures", str(failures))
    suite.set("skipped", str(skipped))
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)
