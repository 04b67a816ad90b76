"""The exception classes of OneFlow's C++ module; each is a class of Python's or torch's that stands for it
here.
"""

import builtins

from .._errors import OneFlowError

Exception = builtins.Exception  # of any failed check; torch has several classes for these
RuntimeError = RuntimeError
IndexError = IndexError
TypeError = TypeError
NotImplementedError = NotImplementedError
CheckFailedException = OneFlowError
