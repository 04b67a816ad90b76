"""flow.vm: OneFlow's instruction scheduler had no public names."""
