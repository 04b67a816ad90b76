"""Record which calls OneFlow refuses, and the class of each error: OneFlow 0.9.0's python
record_refused_calls.py refused_calls.json

Each call of the file is a documented function with one invalid argument. The first entry of its list becomes
"ok" or the name of the class. A second entry is the behavior of this package, if it differs. Remove calls
that end the process from the file.
"""

import json
import sys

import oneflow as flow


def outcome(call):
    try:
        eval(call, {"flow": flow, "o": flow.ones})
    except Exception as error:
        return type(error).__name__
    return "ok"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        recorded = json.load(file)
    for call, outcomes in recorded["calls"].items():
        outcomes[0] = outcome(call)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(recorded, file, indent=0, separators=(",", ":"))
