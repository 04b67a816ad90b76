"""The inductor backend: the regions it compiles, our kernels inside them, and the adjustments to torch's
inductor.
"""
