"""One call of a compiled program: test that it is valid, gather live values, run, write effects back."""

# The modules that other packages import.
SEAM = (
    "branches",
    "checks",
    "entry",
    "epilogue",
    "prologue",
    "validity",
)
