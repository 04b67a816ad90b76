"""Eager oneflow on a GPU: devices, generators, loss scaling, data loading, files, readers, job functions,
embeddings, global tensors, autotest.
"""

import numpy as np
import pytest
import torch

import oneflow as flow

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_devices_and_moves():
    x = flow.tensor([1.0, 2.0], device=DEVICE, requires_grad=True)
    assert x.device == flow.device(DEVICE) == flow.device(DEVICE, 0) and x.is_cuda and not x.is_lazy
    assert (
        isinstance(x.numpy(), np.ndarray)
        and x.numpy().tolist() == [1.0, 2.0]
        and x.to_numpy().dtype == np.float32
    )
    assert (
        x.cpu().device.type == "cpu"
        and flow.from_numpy(np.ones(2, np.float32)).to(DEVICE).device.type == DEVICE
    )
    assert flow.zeros(
        2, device=flow.device(DEVICE)
    ).cuda().device.index == 0 and x.detach().cpu().cuda().tolist() == [1.0, 2.0]
    assert (
        flow.cuda.is_available()
        and flow.cuda.device_count() >= 1
        and flow.cuda.FloatTensor(2).is_cuda
        and flow.cuda.ComplexFloatTensor(2).dtype is torch.complex64
    )
    flow.cuda.synchronize()


def test_generators_and_seeds():
    draw = lambda: flow.rand(5, device=DEVICE)
    flow.manual_seed(5)
    first = draw()
    flow.manual_seed(5)
    assert torch.equal(draw(), first) and not torch.equal(draw(), first)
    generator = flow.Generator(DEVICE)
    generator.manual_seed(1)
    a = flow.randn(4, device=DEVICE, generator=generator)
    generator.manual_seed(1)
    assert torch.equal(flow.randn(4, device=DEVICE, generator=generator), a)
    assert flow._oneflow_internal.default_generator(DEVICE).device.type == DEVICE
    state = flow.cuda.get_rng_state()
    b = draw()
    flow.cuda.set_rng_state(state)
    assert torch.equal(draw(), b)


def test_grad_scaler_skips_a_step_that_overflows():
    w = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    optimizer, scaler = flow.optim.SGD([w], lr=0.1), flow.amp.GradScaler(init_scale=4.0)
    for factor, moves in ((float("inf"), False), (1.0, True)):
        before, scale = w.detach().clone(), scaler.get_scale()
        optimizer.zero_grad()
        scaler.scale((w * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, w.detach()) is not moves and (scaler.get_scale() < scale) is not moves


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype):
    layer, x = flow.nn.Linear(8, 8).to(DEVICE), torch.randn(4, 8, device=DEVICE)
    with flow.autocast(DEVICE, dtype=dtype):
        y = layer(x)
        assert y.dtype is dtype
        assert flow._C.fused_bias_add_gelu(y, layer.bias.to(dtype), axis=1).dtype is dtype
    y.float().sum().backward()
    assert layer.weight.grad.dtype is torch.float32


def test_pinned_batches():
    data = flow.utils.data.TensorDataset(flow.arange(12.0).view(6, 2), flow.arange(6))
    for x, y in flow.utils.data.DataLoader(data, batch_size=3, num_workers=1, pin_memory=True):
        assert x.is_pinned() and x.to(DEVICE, non_blocking=True).sum().item() == x.sum().item()


@pytest.mark.parametrize("as_external_data", [False, True])
def test_saved_tensors_come_back_on_the_device(tmp_path, as_external_data):
    x = {"w": torch.randn(3, 4, device=DEVICE), "half": torch.randn(2, device=DEVICE).half(), "n": 3}
    flow.save(x, str(tmp_path / "x"), save_as_external_data=as_external_data)
    back, here = flow.load(str(tmp_path / "x")), flow.load(str(tmp_path / "x"), map_location="cpu")
    for key in ("w", "half"):
        assert (
            back[key].device.type == ("cpu" if as_external_data else DEVICE)
            or back[key].device.type == DEVICE
        )
        assert (
            here[key].device.type == "cpu"
            and torch.equal(back[key].cpu(), here[key])
            and torch.equal(here[key], x[key].cpu())
        )


def test_streams_of_asyncs():
    worker = flow.asyncs.Thread()
    x = torch.ones(1000, device=DEVICE)
    with flow.asyncs.thread(worker):
        y = x * 2
    assert (y + 1).sum().item() == 3000


def test_profiler_sees_kernels():
    with flow.profiler.profile(
        activities=[flow.profiler.ProfilerActivity.CPU, flow.profiler.ProfilerActivity.CUDA]
    ) as profile:
        (torch.randn(64, 64, device=DEVICE) @ torch.randn(64, 64, device=DEVICE)).sum().item()
    assert profile.key_averages().table()


@pytest.mark.parametrize("name", ["nms", "roi_align"])
def test_detection_takes_every_dtype(name):
    """The kernels are float32 and float64; half precision runs on plain torch."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    scores, image = torch.tensor([0.9, 0.8, 0.7]), torch.randn(1, 2, 32, 32)
    for dtype in (torch.float32, torch.float64, torch.float16):
        if name == "nms":
            kept = flow.nms(boxes.to(DEVICE, dtype), scores.to(DEVICE, dtype), 0.5)
            assert kept.device.type == DEVICE and kept.tolist() == [0, 2]
        else:
            rois = torch.cat([torch.zeros(3, 1), boxes], 1)
            there = flow.roi_align(image.to(DEVICE, dtype), rois.to(DEVICE, dtype), 1.0, 2, 2, 2, True)
            here = flow.roi_align(image, rois, 1.0, 2, 2, 2, True)
            torch.testing.assert_close(
                there.float().cpu(),
                here,
                rtol=1e-2 if dtype is torch.float16 else 1e-4,
                atol=1e-2 if dtype is torch.float16 else 1e-4,
            )


def test_optimizers_step_as_on_the_cpu():
    for make in (
        flow.optim.SGD,
        flow.optim.Adam,
        flow.optim.AdamW,
        flow.optim.RMSprop,
        flow.optim.Adagrad,
        flow.optim.LAMB,
    ):
        results = []
        for place in ("cpu", DEVICE):
            torch.manual_seed(0)
            w = torch.nn.Parameter(torch.randn(5, 4).to(place))
            optimizer = make([w], lr=0.01)
            for _ in range(3):
                optimizer.zero_grad()
                (w.square().sum() + w.sum()).backward()
                optimizer.step()
            results.append(w.detach().cpu())
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5, msg=make.__name__)


def test_global_tensors_of_one_rank():
    place = flow.placement(DEVICE, [0])
    x = flow.ones(4, 2, placement=place, sbp=flow.sbp.split(0))
    assert x.is_global and x.placement == place and x.to_local().device.type == DEVICE
    assert (x @ flow.ones(2, 3, placement=place, sbp=flow.sbp.broadcast)).numpy().tolist() == [[2.0] * 3] * 4
    assert (
        torch.ones(2, device=DEVICE)
        .to_global(placement=place, sbp=flow.sbp.broadcast)
        .to_global(placement=flow.placement("cpu", [0]))
        .to_local()
        .device.type
        == "cpu"
    )


def test_one_embedding_trains(tmp_path):
    from oneflow import one_embedding as oe

    tables = [oe.make_table(oe.make_normal_initializer(0.0, 0.1))]
    store = oe.make_device_mem_store_options(persistent_path=str(tmp_path), capacity=100)
    rows = oe.MultiTableEmbedding("e", 4, torch.float32, torch.int64, tables=tables, store_options=store).to(
        DEVICE
    )
    optimizer, ids = (
        oe.Optimizer(flow.optim.SGD(rows.parameters(), lr=0.5), [rows]),
        torch.tensor([[1], [2], [1]], device=DEVICE),
    )
    losses = []
    for _ in range(4):
        out = rows(ids)
        assert out.device.type == DEVICE
        loss = (out - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_job_functions_run_on_the_gpu():
    import oneflow.compatible.single_client as old

    def train(kind):
        old.clear_default_session()
        config = old.FunctionConfig()
        config.default_logical_view(old.scope.consistent_view())

        @old.global_function(type="train", function_config=config)
        def job(
            x: old.typing.Numpy.Placeholder((8, 4)), y: old.typing.Numpy.Placeholder((8,), dtype=old.int32)
        ) -> old.typing.Numpy:
            with old.scope.placement(kind, "0:0"):
                logits = old.layers.dense(x, 3, kernel_initializer=old.constant_initializer(0.1), name="d")
                loss = old.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
            old.optimizer.SGD(old.optimizer.PiecewiseConstantScheduler([], [0.5]), momentum=0.9).minimize(
                loss
            )
            return loss

        random = np.random.default_rng(0)
        x, y = random.normal(size=(8, 4)).astype(np.float32), random.integers(0, 3, 8).astype(np.int32)
        return [job(x, y).mean().item() for _ in range(5)]

    here, there = train("cpu"), train("gpu" if DEVICE == "cuda" else DEVICE)
    assert there[-1] < there[0] and np.allclose(here, there, rtol=1e-4)


def test_autotest_compares_on_the_device():
    from oneflow.test_utils.automated_test_util import autotest, random, random_device, random_tensor
    from oneflow.test_utils.automated_test_util import torch as both

    seen = set()

    @autotest(n=6, check_graph=True)
    def run(case):
        device = random_device()
        seen.add(str(device.value() if hasattr(device, "value") else device))
        x = random_tensor(ndim=2, dim0=random(1, 5), dim1=4).to(device)
        m = both.nn.Linear(4, 3).to(device)
        return both.relu(m(x))

    run(None)
    assert seen <= {"cpu", "cuda"}


def test_what_readers_make_is_put_on_the_device():
    flips = flow.nn.CoinFlip(batch_size=6, random_seed=1, device=DEVICE)()
    assert flips.device.type == DEVICE and flips.shape == (6,)
    images = torch.randint(256, (6, 5, 7, 3), dtype=torch.uint8)
    normalize = flow.nn.CropMirrorNormalize(
        color_space="RGB",
        output_layout="NCHW",
        mean=[1.0, 2.0, 3.0],
        std=[2.0, 2.0, 2.0],
        output_dtype=flow.float,
    )
    assert torch.equal(normalize(images.to(DEVICE), flips).cpu(), normalize(images, flips.cpu()))
