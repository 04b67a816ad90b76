"""Runtime settings of OneFlow for mechanisms that torch does not have or controls itself.

KNOBS[public name] = (default, type, why it has no effect). A call checks and stores the value, so that it can
be read back. The table of differences lists every row as ignored.
"""

_NCCL = (
    "fusing and scheduling of collectives belongs to OneFlow's boxing; torch.distributed buckets by itself"
)
_CUDNN = "torch.backends.cudnn (benchmark, deterministic) steers convolution algorithms"
_REMAT = "tensors are not evicted and recomputed at run time; use activation checkpointing"

KNOBS = {
    "boxing.enable_fusion": (True, bool, _NCCL),
    "boxing.nccl.set_fusion_threshold_mbytes": (16, int, _NCCL),
    "boxing.nccl.set_fusion_max_ops_num": (64, int, _NCCL),
    "boxing.nccl.allow_fuse_all_reduce": (True, bool, _NCCL),
    "boxing.nccl.allow_fuse_reduce_scatter": (True, bool, _NCCL),
    "boxing.nccl.allow_fuse_all_gather": (True, bool, _NCCL),
    "boxing.nccl.allow_fuse_reduce": (True, bool, _NCCL),
    "boxing.nccl.allow_fuse_broadcast": (True, bool, _NCCL),
    "boxing.nccl.allow_fuse_mixed_ops": (True, bool, _NCCL),
    "boxing.nccl.enable_use_buffer_to_fuse_all_reduce": (False, bool, _NCCL),
    "boxing.nccl.set_stream_num": (1, int, _NCCL),
    "boxing.nccl.enable_all_to_all": (False, bool, _NCCL),
    "boxing.nccl.enable_use_compute_stream": (False, bool, _NCCL),
    "boxing.nccl.disable_group_boxing_by_dst_parallel": (False, bool, _NCCL),
    "backends.cudnn.set_reserved_mem_mbytes": (500, int, _CUDNN),
    "backends.cudnn.enable_fused_normalization_add_relu": (False, bool, _CUDNN),
    "backends.cudnn.enable_conv_heuristic_search_algo": (True, bool, _CUDNN),
    "remat.set_budget": ("0", str, _REMAT),
    "remat.set_small_pieces_optimization": (True, bool, _REMAT),
}
