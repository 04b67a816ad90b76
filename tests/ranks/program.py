"""Checks that run on every rank of a multi-process launch: python -m oneflow.distributed.launch
--nproc_per_node N program.py NAME ...
"""

import sys
import traceback

import checks_of_files
import checks_of_tensors
import checks_of_training
from checks import RANK

CHECKS = {**vars(checks_of_tensors), **vars(checks_of_training), **vars(checks_of_files)}


def main():
    failed = []
    for name in sys.argv[1:]:
        try:
            CHECKS[name]()
        except BaseException:
            failed.append(name)
            print(f"rank {RANK}: {name}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            break  # the other ranks may wait in another call: the launcher ends them
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
