"""What we rely on in other packages, and what we adjust in them."""
