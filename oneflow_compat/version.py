"""Version of this package, and the newest OneFlow version whose API it offers."""

__version__ = "1.0.0"
oneflow_api = "1.0"
git_version = None
