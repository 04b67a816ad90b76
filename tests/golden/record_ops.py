"""Record ops_c.json with OneFlow 0.9.0. Each case runs in a separate process, because OneFlow may abort."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    sys.path.insert(0, HERE)
    from ops_cases import CASES, flatten, helpers

    if len(sys.argv) == 3:
        out = {}
        import oneflow as flow

        for name, code in CASES[int(sys.argv[1]) : int(sys.argv[2])]:
            try:
                out[name] = flatten(eval(code, helpers(flow)))
            except Exception as error:
                print(name, str(error)[-300:], file=sys.stderr)
        print("RESULT" + json.dumps(out))
        return
    everything = {}
    ranges = [(0, len(CASES))]
    while ranges:
        a, b = ranges.pop()
        run = subprocess.run([sys.executable, __file__, str(a), str(b)], capture_output=True, text=True)
        line = [x for x in run.stdout.splitlines() if x.startswith("RESULT")]
        if line:
            everything.update(json.loads(line[0][6:]))
            sys.stderr.write(
                "".join(x + "\n" for x in run.stderr.splitlines() if "ibv" not in x and "cuda" not in x)
            )
        elif b - a > 1:
            ranges += [(a, (a + b) // 2), ((a + b) // 2, b)]
        else:
            print("aborted:", CASES[a][0])
    everything = {name: everything[name] for name, _ in CASES if name in everything}
    with open(os.path.join(HERE, "ops_c.json"), "w") as f:
        f.write(
            "{\n" + ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in everything.items()) + "\n}\n"
        )
    print(len(everything), "of", len(CASES))


if __name__ == "__main__":
    main()
