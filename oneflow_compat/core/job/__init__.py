"""oneflow.core.job: job_conf_pb2."""
