"""Moving blobs between devices of one job. On the CPU, torch's "meta" device replaces the GPU."""

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow.compatible.single_client as flow
from oneflow.compatible.single_client._jobs.boxing import Boxing


def test_operands_of_two_devices_move_to_the_scope():
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="meta")
    with pytest.raises(RuntimeError):
        torch.add(here, there)
    with Boxing(lambda: torch.device("meta")):
        assert torch.matmul(here, there).device.type == "meta"
        assert torch.cat([here, there]).device.type == "meta" and (here + there).device.type == "meta"
        assert torch.add(input=here, other=there).device.type == "meta"
        assert (here + here).device.type == "cpu" and (there * torch.tensor(2.0)).device.type == "meta"
        assert here.device.type == "cpu" and here.to("meta").device.type == "meta"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_job_over_both_devices_trains():
    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    y = (x.sum(1) > 0).astype(np.int32)

    def body(images, labels):
        with flow.scope.placement("cpu", "0:0"):
            h = flow.layers.dense(
                images,
                16,
                activation=flow.nn.relu,
                kernel_initializer=flow.glorot_uniform_initializer(),
                name="a",
            )
        with flow.scope.placement("gpu", "0:0"):
            logits = flow.layers.dense(h, 2, kernel_initializer=flow.glorot_uniform_initializer(), name="b")
            loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.optimizer.Adam(
            flow.optimizer.PiecewiseConstantScheduler([], [0.05]),
            grad_clipping=flow.optimizer.grad_clipping.by_global_norm(1.0),
        ).minimize(loss)
        return loss

    job = job_of(body, [x, y], "train")
    losses = [float(job(x, y).mean()) for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]
    variables = flow.clear_default_session.__globals__["_default"].variables
    assert (
        variables["a-weight"].tensor.device.type == "cpu"
        and variables["b-weight"].tensor.device.type == "cuda"
    )
