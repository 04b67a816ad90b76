"""Run build() once under the recorder and turn what it does into a Program. `capture.py` is the entry.

- `results/`: the symbolic results of operators
- `values/`: what is known of values and sizes, and the branches that a capture takes on them
- `patches/`: what changes in torch and Python while build() runs
- `side_effects/`: what build() does to objects of the user
- `update/`: unscaling, clipping and the steps of optimizers
"""
