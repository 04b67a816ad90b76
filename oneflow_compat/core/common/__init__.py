"""oneflow.core.common: numbers that old programs take from OneFlow's protocol files."""
