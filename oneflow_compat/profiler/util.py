"""Helpers of the profiler's tables."""


def format_time(time_us: float) -> str:
    """Microseconds as "12.000us", "1.234ms" or "2.000s"."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"
