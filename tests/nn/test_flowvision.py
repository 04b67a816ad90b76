"""Every model constructor of flowvision (the unchanged package) builds a model that runs forward.

Classification models are built without initializing their weights and run on meta tensors, which checks the
arguments and shapes of every operator without computing values. Detection, segmentation and style transfer
models, and some training steps, run on tiny images.
"""

import contextlib
import re

import pytest
import torch

import oneflow as flow

pytest.importorskip("flowvision", reason="needs flowvision")
import flowvision.models as models
from flowvision.models.registry import ModelCreator

OTHERS = "rcnn|fcos|retinanet|ssd|deeplab|fcn_|lraspp|fast_neural_style"
NAMES = sorted(n for n in ModelCreator.model_list() if not re.search(OTHERS, n))
# larger siblings of models that stay in the quick run
SLOW = (
    "huge|giant|gigantic|large|384|448|2[12]k|base|m48|uniformer|w48|w64|w40|dla169|10[12]|152|161|169|"
    "201|200|269|LS_|_b[4567]|M36|medium|S36|w14"
)
NEEDS_NUMBERS = "regionvit_.*_w14"  # their forward goes through NumPy
SIZES = {
    "iresnet50": 112,
    "iresnet101": 112,
    "levit_256": 224,
    "levit_384": 224,
    "vit_gigantic_patch14_224": 384,
    "vit_huge_patch14_224": 384,
}


@contextlib.contextmanager
def no_initialisation():
    """The functions of nn.init, and normal_ and uniform_, do not change a tensor."""
    saved = [
        (where, name, getattr(where, name))
        for where in (torch.nn.init, flow.nn.init)
        for name in dir(torch.nn.init)
        if name.endswith("_") and not name.startswith("_")
    ]
    saved += [(torch.Tensor, name, vars(torch.Tensor)[name]) for name in ("normal_", "uniform_")]
    for where, name, _ in saved:
        setattr(where, name, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for where, name, value in saved:
            setattr(where, name, value)


def small_weights(model):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02, generator=generator)
    return model


def test_there_are_models():
    assert len(NAMES) > 260


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if re.search(SLOW, n) else n for n in NAMES]
)
def test_a_classifier_has_a_score_for_each_class(name):
    with no_initialisation():
        model = ModelCreator.create_model(name, pretrained=False)
    size = SIZES.get(name) or int(
        (re.findall(r"(?<!\d)(224|240|256|288|320|384|448|512)(?!\d)", name) or [224])[-1]
    )
    device = "cpu" if re.search(NEEDS_NUMBERS, name) else "meta"
    with torch.no_grad():
        out = model.to(device).eval()(torch.zeros(2, 3, size, size, device=device))
    out = out[0] if isinstance(out, tuple) else out  # googlenet and inception_v3: (logits, auxiliary logits)
    assert out.shape[0] == 2 and out.dim() == 2


SMALL = {"min_size": 64, "max_size": 96}
DETECTION = {
    "fasterrcnn_resnet50_fpn": SMALL,
    "fasterrcnn_mobilenet_v3_large_320_fpn": SMALL,
    "fasterrcnn_mobilenet_v3_large_fpn": SMALL,
    "fcos_resnet50_fpn": SMALL,
    "maskrcnn_resnet50_fpn": SMALL,
    "retinanet_resnet50_fpn": SMALL,
    "ssd300_vgg16": {},
    "ssdlite320_mobilenet_v3_large": {},
}
SLOW_DETECTION = ("maskrcnn_resnet50_fpn", "ssd300_vgg16", "fasterrcnn_mobilenet_v3_large_fpn")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW_DETECTION else n for n in DETECTION]
)
def test_a_detector_trains_and_finds_boxes(name):
    """Losses and gradients in training, boxes in evaluation."""
    with no_initialisation():
        model = getattr(models.detection, name)(
            pretrained=False, pretrained_backbone=False, num_classes=5, **DETECTION[name]
        )
    small_weights(model)
    images = [flow.rand(3, 64, 64, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    target = {
        "boxes": flow.tensor([[5.0, 5.0, 40.0, 40.0]]),
        "labels": flow.tensor([1]),
        "masks": flow.ones(1, 64, 64).to(flow.uint8),
    }
    losses = model.train()(images, [target, target])
    sum(losses.values()).backward()
    assert losses and all(flow.isfinite(v).item() for v in losses.values())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    with flow.no_grad():
        actual = model.eval()(images[:1])[0]
    assert (
        actual["boxes"].shape[1] == 4
        and actual["boxes"].shape[0] == actual["labels"].shape[0] == actual["scores"].shape[0]
    )


@pytest.mark.parametrize(
    "name",
    [
        "deeplabv3_resnet50_coco",
        "deeplabv3_resnet101_coco",
        "deeplabv3_mobilenet_v3_large_coco",
        "fcn_resnet50_coco",
        "fcn_resnet101_coco",
        "lraspp_mobilenet_v3_large_coco",
    ],
)
def test_a_segmenter_has_a_score_for_each_pixel(name):
    with no_initialisation():
        model = getattr(models.segmentation, name)(num_classes=4, pretrained_backbone=False)
    small_weights(model)
    with flow.no_grad():
        out = model.eval()(flow.rand(1, 3, 64, 64))["out"]
    assert out.shape == (1, 4, 64, 64) and flow.isfinite(out).all()


def test_style_transfer_keeps_the_size_and_has_gradients():
    out = models.style_transfer.fast_neural_style()(flow.rand(1, 3, 64, 64))
    assert out.shape == (1, 3, 64, 64)
    out.sum().backward()


@pytest.mark.parametrize(
    "name, size, more",
    [
        ("resnet18", 32, {}),
        ("mobilenet_v2", 32, {}),
        ("shufflenet_v2_x0_5", 64, {}),
        ("squeezenet1_1", 64, {}),
        pytest.param("swin_tiny_patch4_window7_224", 224, {}, marks=pytest.mark.slow),
        pytest.param("vit_tiny_patch16_224", 224, {}, marks=pytest.mark.slow),
    ],
)
def test_training_step_lowers_the_loss_as_the_gradient_predicts(name, size, more):
    """A small step along the gradient changes the loss by -lr * |gradient|^2, to first order (float64)."""
    flow.manual_seed(0)
    # eval: no dropout, no batch statistics
    model = ModelCreator.create_model(name, pretrained=False, num_classes=4, **more).double().eval()
    with flow.no_grad():
        for p in model.parameters():
            p.add_(flow.randn_like(p) * 0.01)  # away from the kink of ReLU at zero biases
    x, y = flow.randn(4, 3, size, size, dtype=flow.float64), flow.tensor([0, 1, 2, 3], dtype=flow.int32)
    loss_fn = flow.nn.CrossEntropyLoss()
    before = loss_fn(model(x), y)
    before.backward()
    square = sum(p.grad.square().sum().item() for p in model.parameters())
    optimizer = flow.optim.SGD(model.parameters(), lr=1e-9 / square)
    optimizer.step()
    after = loss_fn(model(x), y)
    # rounding of a loss near 1 leaves 1e-7 of the change, second-order terms less
    assert (before - after).item() == pytest.approx(1e-9, rel=1e-4)


def test_every_submodule_imports():
    import importlib
    import pkgutil

    import flowvision

    names = [m.name for m in pkgutil.walk_packages(flowvision.__path__, "flowvision.")]
    for name in names:
        importlib.import_module(name)
    assert len(names) > 150


@pytest.mark.parametrize(
    "layer",
    [
        "BAMModule(8)",
        "CbamModule(8)",
        "CoordAttModule(8, 8)",
        "EcaModule(8)",
        "GCTModule(8)",
        "GlobalContext(8)",
        "NonLocalAttn(8)",
        "SEModule(8, rd_channels=2)",
        "DropBlock()",
        "DropPath(0.5)",
        "StochasticDepth(0.5, 'row')",
        "Conv2dSame(8, 4, 3, 2)",
        "LayerNorm2d(8)",
        "FrozenBatchNorm2d(8)",
        "Dynamic_conv2d(8, 4, 3, 0.25)",
    ],
)
def test_a_layer_has_finite_gradients(layer):
    from flowvision import layers

    flow.manual_seed(0)
    x = flow.randn(2, 8, 14, 14, requires_grad=True)
    out = eval(layer, vars(layers).copy())(x)
    out.square().sum().backward()
    assert out.shape[0] == 2 and flow.isfinite(x.grad).all() and x.grad.abs().sum() > 0


def test_box_operators_give_the_known_boxes():
    from flowvision import layers

    boxes = flow.tensor([[0, 0, 5.0, 5.0], [1, 1, 6, 6], [20, 20, 30, 30]])
    scores = flow.tensor([0.9, 0.8, 0.7])
    assert layers.nms(boxes, scores, 0.3).tolist() == [0, 2] and layers.nms(boxes, scores, 0.5).tolist() == [
        0,
        1,
        2,
    ]
    assert layers.batched_nms(boxes, scores, flow.tensor([0, 1, 0]), 0.3).tolist() == [0, 1, 2]
    torch.testing.assert_close(layers.box_iou(boxes, boxes)[0], torch.tensor([1.0, 16 / 34, 0.0]))
    ramp = flow.arange(36.0).reshape(1, 1, 6, 6)  # its mean over a box is its value at the centre
    got = layers.roi_align(ramp, [flow.tensor([[1.0, 1.0, 3.0, 3.0]])], (1, 1), sampling_ratio=2)
    assert got.item() == pytest.approx(2 * 6 + 2)


def test_transforms_mixup_and_metric():
    import flowvision.transforms as T
    import numpy as np
    from flowvision.data import Mixup
    from flowvision.utils.metrics import accuracy
    from PIL import Image

    image = Image.fromarray((np.arange(40 * 50 * 3) % 255).astype("uint8").reshape(40, 50, 3))
    steps = T.Compose(
        [
            T.Resize(36),
            T.RandomResizedCrop(32),
            T.RandomHorizontalFlip(),
            T.ColorJitter(0.1, 0.1, 0.1),
            T.ToTensor(),
            T.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    assert steps(image).shape == (3, 32, 32) and T.ToPILImage()(flow.rand(3, 8, 8)).size == (8, 8)
    x, y = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=5)(
        flow.randn(4, 3, 8, 8), flow.tensor([0, 1, 2, 3])
    )
    assert x.shape == (4, 3, 8, 8) and y.shape == (4, 5)
    top1, top2 = accuracy(flow.tensor([[0.1, 0.9], [0.8, 0.2]]), flow.tensor([1, 1]), topk=(1, 2))
    assert (top1.item(), top2.item()) == (50.0, 100.0)
