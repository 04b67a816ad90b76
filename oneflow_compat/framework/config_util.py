"""oneflow.framework.config_util: the runtime knobs by OneFlow's fields."""

from .._graph.runtime_knobs import api_attrs_and_type, resource, set_resource  # noqa: F401
