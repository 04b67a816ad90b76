"""Deep path of the job being built."""

from .._oneflow_internal.jobs import CurJobBuildAndInferCtx_SetJobConf, JobBuildAndInferCtx_Open

__all__ = ["CurJobBuildAndInferCtx_SetJobConf", "JobBuildAndInferCtx_Open"]
