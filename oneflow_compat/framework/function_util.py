"""Deep path of the legacy job function's configuration."""

from .. import FunctionConfig, function_config as oneflow_function_config
