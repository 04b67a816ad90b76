"""What a capture knows of values and sizes, and the branches that it takes on them."""
