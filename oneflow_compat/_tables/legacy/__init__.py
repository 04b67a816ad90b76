"""Tables of the job-function API (oneflow.compatible.single_client)."""
