"""ONEFLOW_CPU_FOR_CUDA=1 runs programs that name CUDA devices on a machine without one."""

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the variable has no effect with a GPU")

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import oneflow as flow
assert [str(w.message) for w in caught if "no CUDA device" in str(w.message)], caught
warnings.simplefilter("error")

flow.manual_seed(0)
device = flow.device("cuda")
model = flow.nn.Sequential(flow.nn.Linear(3, 4, device="cuda"), flow.nn.ReLU(), flow.nn.Linear(4, 2)).cuda()
model.to("cuda:0")
x = flow.ones(5, 3, device=device).cuda(0).to(device="cuda").type("torch.cuda.FloatTensor")
y = model(x) + flow.tensor([1.0, 2.0], device="cuda:0")

class Step(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.001))

    def build(self, x):
        loss = self.model(x.to("cuda")).square().sum()
        loss.backward()
        return loss

step = Step()
assert step(x) > step(x)
placement = flow.placement("cuda", ranks=[0])
g = flow.randn(2, 3, placement=placement, sbp=flow.sbp.broadcast)
assert placement == flow.placement.all("cuda") and g.to_global(sbp=flow.sbp.split(0)).to_local().shape == (2, 3)
flow.save({"w": x}, "saved")
assert flow.load("saved", map_location="cuda")["w"].equal(x)
assert not flow.cuda.is_available()
with flow.cuda.device(0):
    assert flow.cuda.FloatTensor([1.0]).equal(flow.ones(1, device="cuda"))
generator = flow.Generator(device="cuda").manual_seed(1)
assert flow.rand(2, generator=generator, device="cuda").shape == (2,)

with flow.mock_torch.enable():
    import copy, torch
    generator = torch.Generator("cuda").manual_seed(3)
    numbers = torch.randn(2, device="cuda", generator=generator)
    assert numbers.equal(torch.randn(2, generator=torch.Generator().manual_seed(3)))
    assert copy.deepcopy(generator).get_state().equal(generator.get_state())
    assert isinstance(torch.default_generator, torch.Generator) and not isinstance(3, torch.Generator)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    start.record()
    with torch.cuda.stream(side):
        numbers = numbers + 1
    end.record()
    torch.cuda.synchronize()
    assert 0 <= start.elapsed_time(end) < 60_000
    assert torch.cuda.get_device_capability(0) < (7, 0) and torch.cuda.current_device() == 0
    assert torch.cuda.mem_get_info()[1] == torch.cuda.get_device_properties("cuda").total_memory > 0
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    state = torch.cuda.get_rng_state()
    numbers = torch.rand(2, device="cuda")
    torch.cuda.set_rng_state(state)
    assert numbers.equal(torch.rand(2, device="cuda"))

import oneflow.compatible.single_client as of

@of.global_function()
def job(x: of.typing.Numpy.Placeholder((2,))) -> of.typing.Numpy:
    with of.scope.placement("gpu", "0:0"):
        return x + 1

assert of.Generator("cuda").initial_seed() and of.default_generator("cuda") is flow.default_generator

import numpy
print(y.device, g.placement.type, job(numpy.ones(2, numpy.float32)).tolist())
"""  # noqa: E501


def test_a_program_that_names_cuda(tmp_path):
    environment = {**os.environ, "ONEFLOW_CPU_FOR_CUDA": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "cpu cpu [2.0, 2.0]\n"), done.stderr[-2000:]
