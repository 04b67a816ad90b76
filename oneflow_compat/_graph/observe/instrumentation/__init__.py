"""Run code of the user as copies that call a hook before each read. Which code: `policy.py`."""
