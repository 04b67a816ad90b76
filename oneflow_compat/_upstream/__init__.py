"""Private names of other packages that this package relies on, and adjustments made to other packages."""
