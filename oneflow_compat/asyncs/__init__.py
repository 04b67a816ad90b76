"""oneflow.asyncs: run operators on another stream, CUDA's where there is one."""

from .thread import Thread, thread
