"""oneflow.core.job.job_conf_pb2."""

from ...nn.graph.job_message.job_conf import JobConfigProto  # noqa: F401
