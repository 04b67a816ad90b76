"""Functions of oneflow.nn.functional and oneflow.nn.init that differ from torch's."""
