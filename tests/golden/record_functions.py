"""Record functions_cases.py: run under OneFlow 0.9.0 (`python record_functions.py`); writes functions.json
beside it.

A case OneFlow refuses is recorded as null and not replayed.
"""

import json
import os
import sys
import warnings

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import functions_cases


def plain(value):
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    a = value if isinstance(value, np.ndarray) else value.detach().numpy()
    return {
        "dtype": str(value.dtype).split(".")[-1],
        "shape": list(a.shape),
        "values": [round(float(v), 7) for v in a.ravel()],
    }


if __name__ == "__main__":
    import oneflow as flow

    warnings.simplefilter("ignore")
    out = {}
    for case in functions_cases.CASES:
        try:
            out[case] = plain(eval(case, functions_cases.names(flow)))
        except Exception as error:
            out[case] = None
            print("refused:", case, "|", str(error).replace("\n", " ")[:120])
    with open(os.path.join(HERE, "functions.json"), "w") as file:
        file.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in out.items()) + "\n}\n")
    print(len(out), "cases,", sum(v is None for v in out.values()), "refused")
