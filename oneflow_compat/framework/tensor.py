"""Deep path of oneflow.Tensor and the list of tensors OneFlow's functions return."""

from torch import Tensor

TensorTuple = list


def register_tensor_op(op_name: str):
    """A decorator: the function becomes the method `op_name` of every tensor; also torch's own of that name
    is replaced.
    """

    def put(function):
        setattr(Tensor, op_name, function)
        return function

    return put
