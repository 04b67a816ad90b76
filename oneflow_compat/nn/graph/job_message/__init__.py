"""OneFlow's job messages, on demand: look-alikes of its protobuf classes, and a program as such a message."""
