"""Tables that describe the public API. They contain data only."""
