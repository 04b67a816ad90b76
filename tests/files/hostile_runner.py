"""Load saved graphs in a separate process and print the outcome of each: python hostile_runner.py FOLDER, a
folder of folders.

The output is one JSON line for each graph: its name, the error (class and text) or the result of a call, CPU
seconds, growth of the process in MiB, and modules imported by the load.
"""

import json
import os
import resource
import signal
import sys
import time

import torch

import oneflow as flow

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class TooSlow(BaseException):
    pass


def out_of_time(*_):
    raise TooSlow("out of time")


def attempt(folder):
    """(stage, class of the error, text)"""
    stage = "load"
    try:
        graph = flow.load_graph(folder)
        str(graph.program)
        stage = "call"
        out = graph(X)
    except TooSlow:
        return stage, "TooSlow", ""
    except BaseException as error:
        return stage, type(error).__name__, str(error)
    return "done", "", json.dumps(out["logits"].flatten().tolist() if isinstance(out, dict) else float(out))


def main(root, limit_s=20, memory=6 << 30):
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, out_of_time)
    names = sorted(os.listdir(root))
    for name in [n for n in names if n.startswith("legit-")] + [
        n for n in names if not n.startswith("legit-")
    ]:
        modules, before, start = (
            set(sys.modules),
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            time.process_time(),
        )
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        stage, error, text = attempt(os.path.join(root, name))
        signal.setitimer(signal.ITIMER_PROF, 0)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        record = {
            "name": name,
            "stage": stage,
            "error": error,
            "text": text,
            "seconds": time.process_time() - start,
            "grown": grown,
            "imported": sorted(set(sys.modules) - modules),
        }
        print(json.dumps(record), flush=True)


main(sys.argv[1])
