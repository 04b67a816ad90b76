"""Programs on disk: written by `package.py`, read by strict readers, called through `loaded.py`."""
