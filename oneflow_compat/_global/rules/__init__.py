"""What operators do on global tensors of several ranks where DTensor has no rule or another result."""
