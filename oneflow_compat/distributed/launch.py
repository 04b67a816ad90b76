"""python -m oneflow.distributed.launch [options] SCRIPT [ARGS]: torchrun, which takes OneFlow's options as
well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Start one process per device; --nproc_per_node, --nnodes, --node_rank, --master_addr, --master_port as
    torchrun takes them.

    OneFlow's --logdir and --redirect_stdout_and_stderr are torchrun's --log-dir and --redirects 3.
    """
    from torch.distributed.elastic.multiprocessing.errors import record
    from torch.distributed.run import run

    record(run)(parser().parse_args(argv))


def parser() -> argparse.ArgumentParser:
    """torchrun's parser with OneFlow's two option names."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    parser.prog = "python -m oneflow.distributed.launch"
    parser.add_argument("--logdir", dest="log_dir", help="OneFlow's name of --log-dir")
    parser.add_argument(
        "--redirect_stdout_and_stderr",
        dest="redirects",
        action="store_const",
        const="3",
        help="OneFlow's name of --redirects 3",
    )
    return parser


if __name__ == "__main__":
    main()
