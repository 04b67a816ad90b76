"""The exception classes of OneFlow's C++ module; each is a class of Python's or torch's that stands for it here."""
from .._errors import OneFlowError

Exception = RuntimeError
RuntimeError = RuntimeError
IndexError = IndexError
TypeError = TypeError
NotImplementedError = NotImplementedError
CheckFailedException = OneFlowError
