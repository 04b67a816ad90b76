"""Empty in OneFlow 0.5 too."""
