"""Run build() once under the recorder and turn what it does into a Program. `capture.py` is the entry."""
