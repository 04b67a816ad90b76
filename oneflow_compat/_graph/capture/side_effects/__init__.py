"""What build() does to objects of the user: modules, arguments, gradients, tensors left behind."""
