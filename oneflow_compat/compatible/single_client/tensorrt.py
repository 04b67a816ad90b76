"""flow.tensorrt: INT8 calibration of OneFlow's TensorRT sub-graphs."""

from __future__ import annotations

from ..._errors import unsupported


def write_int8_calibration(path):
    raise unsupported(
        "flow.tensorrt.write_int8_calibration",
        "legacy-tensorrt",
        "Choose the TensorRT backend of nn.Graph and calibrate with torch_tensorrt.",
    )


def cache_int8_calibration():
    raise unsupported(
        "flow.tensorrt.cache_int8_calibration",
        "legacy-tensorrt",
        "Choose the TensorRT backend of nn.Graph and calibrate with torch_tensorrt.",
    )
