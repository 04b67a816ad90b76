"""flowvision's models in nn.Graph.

One model of each classification family is captured with its training step on meta tensors, which checks every
operator of forward, backward and update without computing values. Segmentation, style transfer and detection
models train for a step. Detectors branch on sizes, which OneFlow 0.9.0 does not support in a graph. The loss
of FCOS reads a value (`.item()`), so FCOS only runs inference.
"""

import contextlib

import pytest

import oneflow as flow
import oneflow.nn as nn

models = pytest.importorskip("flowvision.models")
from flowvision.models.registry import ModelCreator

FAMILIES = """
    alexnet cait_S24_224 convmixer_768_32_relu convnext_tiny_224 convnext_iso_small_224
    crossformer_tiny_patch4_group7_224 cswin_tiny_224 deit_tiny_distilled_patch16_224 deit_tiny_patch16_224
    deit_small_patch16_LS_224 densenet121 dla46_c efficientnet_b0 fan_tiny_12_p16_224 fan_tiny_8_p4_hybrid
    genet_small ghostnet gmlp_ti16_224 googlenet hrnet_w18_small inception_v3 iresnet50 levit_128s
    mlp_mixer_b32_224 mnasnet0_5 mobilenet_v2 mobilenet_v3_small mobilevit_xx_small poolformer_s12 pvt_tiny
    regionvit_tiny_224 regnet_x_400mf regnet_y_400mf res2net50_26w_4s resmlp_12_224 resmlp_12_distilled_224
    resnest50 resnet18 resnext50_32x4d rexnet_lite_1_0 rexnetv1_1_0 se_resnet50 senet154 shufflenet_v2_x0_5
    squeezenet1_0 swin_tiny_patch4_window7_224 uniformer_small van_tiny vgg11 vgg11_bn vit_tiny_patch16_224
    wide_resnet50_2
""".split()
QUICK = ("alexnet", "resnet18", "vgg11_bn", "squeezenet1_0", "shufflenet_v2_x0_5")
SIZES = {"inception_v3": 299, "iresnet50": 112}


@contextlib.contextmanager
def no_initialisation():
    saved = [
        (where, name, getattr(where, name))
        for where in (flow.nn.init,)
        for name in dir(where)
        if name.endswith("_") and not name.startswith("_")
    ]
    saved += [(flow.Tensor, name, vars(flow.Tensor)[name]) for name in ("normal_", "uniform_")]
    for where, name, _ in saved:
        setattr(where, name, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for where, name, value in saved:
            setattr(where, name, value)


class Train(nn.Graph):
    def __init__(self, model, optimizer, loss):
        super().__init__()
        self.model, self.loss = model, loss
        self.add_optimizer(optimizer)

    def build(self, *batch):
        loss = self.loss(self.model, *batch)
        loss.backward()
        return loss


def classification(model, x, y):
    out = model(x)
    return nn.functional.cross_entropy(out[0] if isinstance(out, tuple) else out, y)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FAMILIES]
)
def test_a_training_step_is_captured(name):
    with no_initialisation():
        model = ModelCreator.create_model(name, pretrained=False).to("meta").train()
    size = SIZES.get(name, 224)
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), classification)
    graph._compile(
        flow.zeros(2, 3, size, size, device="meta"), flow.zeros(2, dtype=flow.int64, device="meta")
    )
    text = str(graph.program)
    assert "convolution" in text or "addmm" in text
    assert text.count("_foreach_") or text.count("add_") >= len(list(model.parameters()))


def segmentation(model, x, y):
    out = model(x)
    loss = nn.functional.cross_entropy(out["out"], y)
    return loss + 0.5 * nn.functional.cross_entropy(out["aux"], y) if "aux" in out else loss


def style(model, x):
    return (model(x) - x).square().mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "deeplabv3_resnet50_coco",
        "deeplabv3_mobilenet_v3_large_coco",
        "fcn_resnet50_coco",
        "lraspp_mobilenet_v3_large_coco",
        "fast_neural_style",
    ],
)
def test_a_step_equals_eagers(name):
    def make():
        flow.manual_seed(0)
        if name == "fast_neural_style":
            return models.style_transfer.fast_neural_style()
        return getattr(models.segmentation, name)(num_classes=4, pretrained_backbone=False)

    flow.manual_seed(1)
    batch = (flow.rand(2, 3, 64, 64),) + (
        () if name == "fast_neural_style" else (flow.randint(0, 4, (2, 64, 64)),)
    )
    loss_of = style if name == "fast_neural_style" else segmentation
    eager = make().train()
    optimizer = flow.optim.SGD(eager.parameters(), lr=0.01)
    flow.manual_seed(2)
    loss = loss_of(eager, *batch)
    loss.backward()
    optimizer.step()
    model = make().train()
    graph = Train(model, flow.optim.SGD(model.parameters(), lr=0.01), loss_of)
    flow.manual_seed(2)
    assert graph(*batch).item() == loss.item()
    for (key, a), b in zip(model.state_dict().items(), eager.state_dict().values()):
        assert flow.equal(a, b), key


def detector(name):
    import copy

    from flowvision.models import detection

    flow.manual_seed(0)
    model = getattr(detection, name)(pretrained=False, pretrained_backbone=False, num_classes=5)
    return model, copy.deepcopy(model)


@pytest.mark.parametrize(
    "name",
    [
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("ssd300_vgg16", "retinanet_resnet50_fpn", "fcos_resnet50_fpn")
        ),
    ],
)
def test_a_detector_trains_as_in_eager(name):
    model, other = detector(name)
    optimizers = [flow.optim.SGD(m.parameters(), lr=1e-4) for m in (model, other)]

    class Detection(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = other
            self.add_optimizer(optimizers[1])

        def build(self, image, boxes, labels):
            losses = self.model([image], [{"boxes": boxes, "labels": labels}])
            sum(losses.values()).backward()
            return losses

    graph = Detection()
    for count in (2, 1):
        image, boxes, labels = (
            flow.rand(3, 96, 96),
            flow.tensor([[5.0, 5, 50, 60], [20, 30, 80, 90]])[:count],
            flow.tensor([1, 2])[:count],
        )
        flow.manual_seed(count)
        expected = model([image], [{"boxes": boxes, "labels": labels}])
        optimizers[0].zero_grad()
        sum(expected.values()).backward()
        optimizers[0].step()
        flow.manual_seed(count)
        actual = graph(image, boxes, labels)
        assert expected.keys() == actual.keys() and all(
            flow.equal(expected[k].detach(), actual[k].detach()) for k in expected
        )
    assert all(flow.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "fasterrcnn_mobilenet_v3_large_320_fpn",
        "ssd300_vgg16",
        "ssdlite320_mobilenet_v3_large",
        "retinanet_resnet50_fpn",
        "fcos_resnet50_fpn",
    ],
)
def test_a_detector_finds_what_eager_finds(name):
    model, _ = detector(name)

    class Detection(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model.eval()

        def build(self, image):
            return self.model([image])

    graph = Detection()
    with flow.no_grad():
        for _ in range(2):
            image = flow.rand(3, 96, 96)
            for actual, expected in zip(graph(image), model([image])):
                assert actual.keys() == expected.keys() and all(
                    flow.equal(actual[k], expected[k]) for k in actual
                )
