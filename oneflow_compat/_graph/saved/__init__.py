"""Programs on disk: written by `package.py`, read by strict readers, called through `loaded.py`."""

# The modules that other packages import.
SEAM = (
    "loaded",
    "package",
    "schedules",
    "state_writes",
    "writer",
)
