"""What a program tests of the arguments and the values of a call: facts, sizes and numbers.

The guards of what build() read from Python are in `observe/guards/`.
"""
