"""Helpers of the job-function tests: run a function of blobs as a job."""

import inspect

import numpy as np
import torch

import oneflow.compatible.single_client as flow
import oneflow.compatible.single_client.typing as tp


def job_of(function, arrays, kind="predict", config=None, name="job"):
    """`function(*blobs)` as a job whose inputs have the shapes and dtypes of `arrays`."""
    parameters = [
        inspect.Parameter(
            f"x{i}",
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=tp.Numpy.Placeholder(a.shape, dtype=torch.from_numpy(np.empty(0, a.dtype)).dtype),
        )
        for i, a in enumerate(arrays)
    ]

    def body(*blobs):
        return function(*blobs)

    body.__name__ = name
    body.__signature__ = inspect.Signature(parameters, return_annotation=tp.Bundle[tp.Numpy])
    return flow.global_function(type=kind, function_config=config)(body)


def result_of_job(function, *arrays, kind="predict", config=None):
    """The numpy result of `function` as a job called once with `arrays`."""
    return job_of(function, arrays, kind, config)(*arrays)


def gradient(function, *arrays, wrt=0):
    """(result, gradient of the sum of the result for input `wrt`), through watch_diff in a train job."""
    got = {}

    def body(*blobs):
        blobs = list(blobs)
        v = flow.get_variable("zero", shape=(1,), initializer=flow.zeros_initializer())
        blobs[wrt] = blobs[wrt] + v.to(blobs[wrt].dtype)
        flow.watch_diff(blobs[wrt], lambda d: got.update(d=d.numpy()))
        out = function(*blobs)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0]), momentum=0).minimize(out)
        return out

    out = job_of(body, arrays, "train")(*arrays)
    return out, got["d"]
