"""oneflow.nn.modules.fake_quantization: the path under which OneFlow's pickles name FakeQuantization."""

from .quantization import FakeQuantization

__all__ = ["FakeQuantization"]
