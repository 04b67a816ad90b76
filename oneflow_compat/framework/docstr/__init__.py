"""oneflow.framework.docstr: what sets documentation."""
