"""What a capture changes in torch and Python while build() runs. `torch_patches.py` has the list."""
