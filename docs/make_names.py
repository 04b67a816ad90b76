"""Writes api/names.txt, OneFlow's public names, from a list of its API: make_names.py oneflow_api.json"""
import json
import sys
from pathlib import Path

PUBLIC = ("documented", "exported", "deep-import", "removed")
names = sorted(r["name"] for r in json.loads(Path(sys.argv[1]).read_text()) if r["tier"] in PUBLIC and r["name"] != "oneflow")
(Path(__file__).parent / "api" / "names.txt").write_text("\n".join(names) + "\n")
print(len(names), "names")
