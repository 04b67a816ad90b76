"""One call of a compiled program: test that it is valid, gather live values, run, write effects back."""
