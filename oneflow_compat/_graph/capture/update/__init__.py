"""The end of a captured training step: unscale, clip, optimizer steps, and the host scalars they read."""
