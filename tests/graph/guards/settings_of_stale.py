"""A settings module of test_stale_python.py."""

SCALE = 1.0
TABLE = {"k": [1.0, 2.0]}
COUNTS = {"calls": 0}
CACHE = {}


def scaled(x):
    return x * SCALE
