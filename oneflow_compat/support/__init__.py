"""oneflow.support: helpers that OneFlow's own test harness imports."""
