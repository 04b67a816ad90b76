"""What a safe load may construct: the accepted names, and a checked function for each."""
