"""Documentation set from outside of a function."""


def add_docstr(fun, docstr: str):
    """`fun` with a docstring; RuntimeError where it has one."""
    if fun.__doc__ is not None:
        raise RuntimeError(f"{fun!r} has a docstring already; reset_docstr replaces it")
    return reset_docstr(fun, docstr)


def reset_docstr(o, docstr: str):
    """`o` with another docstring."""
    o.__doc__ = docstr
    return o
