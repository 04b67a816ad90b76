"""`python -m oneflow.distributed.launch`: torchrun under OneFlow's option names."""
from __future__ import annotations

import sys


def main(argv=None):
    """Start one process per device; --nproc_per_node, --nnodes, --node_rank, --master_addr, --master_port as torchrun takes them.

    OneFlow's --logdir and --redirect_stdout_and_stderr become torchrun's --log-dir and --redirects.
    """
    from torch.distributed.run import main as run

    argv = list(sys.argv[1:] if argv is None else argv)
    names = {"--logdir": "--log-dir", "--redirect_stdout_and_stderr": "--redirects=3"}
    run([names.get(a.split("=")[0], a.split("=")[0]) + a[len(a.split("=")[0]):] for a in argv])


if __name__ == "__main__":
    main()
