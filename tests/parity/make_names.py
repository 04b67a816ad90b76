"""Write names.json, the documented names of OneFlow, from a list of its API.

python tests/parity/make_names.py oneflow_api.json
"""

import json
import sys
from pathlib import Path

names = []
for record in json.loads(Path(sys.argv[1]).read_text()):
    if record["tier"] == "documented" and record["in_docs"]:
        names.append([record["name"], record["kind"], bool(record["torch"])])
lines = ",\n".join(json.dumps(n) for n in sorted(names))
(Path(__file__).parent / "names.json").write_text(f"[\n{lines}\n]\n")
print(len(names), "names")
