"""flowvision without its models: transforms of images and tensors, augmentation policies, mixing, schedules,
clipping, image folders.
"""

import random

import numpy as np
import pytest

import oneflow as flow

pytest.importorskip("flowvision")
Image = pytest.importorskip("PIL.Image")
import flowvision.scheduler as scheduler
import flowvision.transforms as T
import flowvision.transforms.functional as F
from flowvision.data import Mixup, RandomErasing, create_transform
from flowvision.datasets import ImageFolder
from flowvision.utils import dispatch_clip_grad, make_grid

PIXELS = (np.random.RandomState(0).rand(20, 24, 3) * 255).astype("uint8")
CALLS = {
    "resize": ([10, 12],),
    "pad": ([1, 2],),
    "crop": (1, 2, 8, 9),
    "center_crop": ([8, 8],),
    "resized_crop": (1, 1, 8, 8, [4, 4]),
    "hflip": (),
    "vflip": (),
    "five_crop": ([8, 8],),
    "ten_crop": ([8, 8],),
    "adjust_brightness": (1.2,),
    "adjust_contrast": (1.2,),
    "adjust_saturation": (1.2,),
    "rotate": (15.0,),
    "gaussian_blur": ([3, 3],),
}


@pytest.mark.parametrize("name", CALLS)
def test_functional_transforms_of_images_and_tensors_agree(name):
    image, tensor = Image.fromarray(PIXELS), flow.tensor(PIXELS).permute(2, 0, 1)
    actual, expected = getattr(F, name)(tensor, *CALLS[name]), getattr(F, name)(image, *CALLS[name])
    for a, b in zip(actual, expected) if isinstance(expected, tuple) else [(actual, expected)]:
        b = flow.tensor(np.asarray(b)).permute(2, 0, 1)
        assert a.shape == b.shape and a.dtype == b.dtype
        # these interpolate in other ways
        if name not in (
            "resize",
            "resized_crop",
            "rotate",
            "gaussian_blur",
        ):
            assert (a.float() - b.float()).abs().max().item() <= 1  # rounding to whole numbers


@pytest.mark.parametrize("policy", ["rand-m9-mstd0.5-inc1", "original-mstd0.5", "v0", "augmix-m5-w4-d2"])
def test_augmentation_policies(policy):
    random.seed(0)  # "v0" sometimes samples a posterization to 0 bits, which Pillow 13 refuses
    np.random.seed(0)
    steps = create_transform(
        16,
        is_training=True,
        auto_augment=policy,
        re_prob=1.0,
        re_mode="pixel",
        interpolation="bicubic",
        color_jitter=0.4,
    )
    assert steps(Image.fromarray(PIXELS)).shape == (3, 16, 16)


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("cutmix", [0.0, 1.0])
def test_mixing_and_erasing(mode, cutmix):
    x, y = Mixup(mixup_alpha=0.8, cutmix_alpha=cutmix, mode=mode, num_classes=5, label_smoothing=0.1)(
        flow.rand(4, 3, 16, 16), flow.tensor([0, 1, 2, 3])
    )
    assert x.shape == (4, 3, 16, 16) and y.shape == (4, 5) and flow.allclose(y.sum(1), flow.ones(4), 1e-5)
    erased = RandomErasing(1.0, mode={"batch": "const", "pair": "rand", "elem": "pixel"}[mode], device="cpu")(
        flow.ones(2, 3, 16, 16)
    )
    assert (erased != 1).any()


RATES = {
    "CosineLRScheduler": (
        dict(t_initial=10, warmup_t=2, warmup_lr_init=0.01, lr_min=1e-4),
        [0.01, 0.055, 0.09046, 0.07941, 0.06549, 0.05005],
    ),
    "LinearLRScheduler": (
        dict(t_initial=10, lr_min_rate=0.1, warmup_t=2, warmup_lr_init=0.01),
        [0.01, 0.055, 0.1, 0.08875, 0.0775, 0.06625],
    ),
    "StepLRScheduler": (
        dict(decay_t=3, decay_rate=0.5, warmup_t=2, warmup_lr_init=0.01),
        [0.01, 0.055, 0.1, 0.05, 0.05, 0.05],
    ),
    "MultiStepLRScheduler": (dict(decay_t=[3, 6], decay_rate=0.5), [0.1, 0.1, 0.05, 0.05, 0.05, 0.025]),
}


@pytest.mark.parametrize("name", RATES)
def test_schedules(name):
    options, want = RATES[name]
    optimizer = flow.optim.SGD([flow.nn.Parameter(flow.ones(1))], lr=0.1)
    schedule, rates = getattr(scheduler, name)(optimizer, **options), []
    for epoch in range(6):
        schedule.step(epoch)
        rates.append(round(optimizer.param_groups[0]["lr"], 5))
    assert rates == want


def test_folder_loader_grid_and_clipping(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        for i in range(3):
            Image.fromarray(PIXELS).save(tmp_path / label / f"{i}.png")
    data = ImageFolder(
        str(tmp_path), T.Compose([T.Resize((8, 8)), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)])
    )
    images, labels = next(iter(flow.utils.data.DataLoader(data, batch_size=6)))
    assert (
        images.shape == (6, 3, 8, 8)
        and labels.tolist() == [0, 0, 0, 1, 1, 1]
        and make_grid(images, nrow=3).shape == (3, 22, 32)
    )
    for mode in ("norm", "value", "agc"):
        weight = flow.nn.Parameter(flow.ones(2, 2))
        weight.grad = flow.ones(2, 2) * 10
        dispatch_clip_grad([weight], 0.1, mode=mode)
        assert weight.grad.abs().max().item() <= 0.2
