"""OneFlow's job messages: look-alikes of its protobuf classes, used on demand."""
