"""Reduced vision programs as the model zoos write them: ResNet with train and eval graphs, a DCGAN, a
one-stage detector's loss.
"""

import math

import pytest

import oneflow as flow
import oneflow.nn as nn


# --------------------------------------------------------------------------- classification
class LabelSmoothLoss(nn.Module):
    """Cross entropy with the weight `rate` spread over all classes, from one-hot labels."""

    def __init__(self, classes, rate):
        super().__init__()
        self.classes, self.rate = classes, rate
        self.log_softmax = nn.LogSoftmax(dim=-1)

    def forward(self, logits, labels):
        one_hot = flow._C.one_hot(
            labels, self.classes, on_value=1 - self.rate, off_value=self.rate / (self.classes - 1)
        )
        return -flow.mean(flow.sum(self.log_softmax(logits) * one_hot, dim=-1))


class Normalize(nn.Module):
    """uint8 NHWC images to normalised NCHW floats."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", flow.tensor([123.68, 116.78, 103.94]).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", flow.tensor([58.4, 57.1, 57.4]).view(1, 3, 1, 1), persistent=False)

    def forward(self, images):
        return (images.permute(0, 3, 1, 2).to(flow.float32) - self.mean) / self.std


class TrainGraph(nn.Graph):
    def __init__(self, model, loss, optimizer, schedule, args):
        super().__init__()
        if args["amp"]:
            self.config.enable_amp(True)
            self.set_grad_scaler(flow.amp.StaticGradScaler(args["scale"]))
        self.config.allow_fuse_add_to_output(True)
        self.config.allow_fuse_model_update_ops(True)
        self.config.enable_cudnn_conv_heuristic_search_algo(False)
        self.normalize, self.model, self.loss = Normalize(), model, loss
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self, images, labels):
        logits = self.model(self.normalize(images))
        loss = self.loss(logits, labels)
        loss.backward()
        return loss, logits.softmax(), labels


class EvalGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.normalize, self.model = Normalize(), model

    def build(self, images):
        return self.model(self.normalize(images)).softmax()


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "amp"])
def test_resnet_train_and_eval_graphs(amp):
    resnet = pytest.importorskip("flowvision.models").resnet18
    flow.manual_seed(0)
    model = resnet(num_classes=4)
    for module in model.modules():
        if isinstance(module, type(model.layer1[0])):
            nn.init.zeros_(module.bn2.weight)
    decay = [p for n, p in model.named_parameters() if "bn" not in n and "bias" not in n]
    rest = [p for n, p in model.named_parameters() if "bn" in n or "bias" in n]
    optimizer = flow.optim.SGD(
        [{"params": decay, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}],
        lr=0.05,
        momentum=0.9,
    )
    cosine = flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=20)
    schedule = flow.optim.lr_scheduler.WarmUpLR(
        cosine, warmup_factor=0, warmup_iters=2, warmup_method="linear"
    )
    train = TrainGraph(model, LabelSmoothLoss(4, 0.1), optimizer, schedule, {"amp": amp, "scale": 128.0})
    evaluate = EvalGraph(model)
    labels = flow.arange(8) % 4
    images = (flow.randint(0, 60, (8, 32, 32, 3)) + labels.view(8, 1, 1, 1) * 60).to(flow.uint8)
    losses = []
    model.train()
    for _ in range(10):
        loss, predictions, _ = train(images, labels)
        losses.append(loss.item())
    assert all(math.isfinite(v) for v in losses) and losses[-1] < 0.8 * losses[0]
    assert predictions.shape == (8, 4) and (predictions.argmax(1) == labels).float().mean().item() >= 0.75
    model.eval()
    assert evaluate(images).shape == (8, 4) and model.bn1.num_batches_tracked.item() == 10


# --------------------------------------------------------------------------- DCGAN, eager
def test_dcgan_eager():
    flow.manual_seed(0)
    generator = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Dropout(0.3),
        nn.Conv2d(16, 1, 4, 1, 0, bias=False),
    )

    def start(module):
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.normal_(module.weight.data, 0.0, 0.05)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight.data, 1.0, 0.02), nn.init.constant_(module.bias.data, 0)

    generator.apply(start), critic.apply(start)
    of_generator, of_critic = (
        flow.optim.Adam(m.parameters(), lr=2e-3, betas=(0.5, 0.999)) for m in (generator, critic)
    )
    bce = nn.BCEWithLogitsLoss()
    ones, zeros = flow.ones((8,)), flow.zeros((8,))
    real = flow.ones(8, 1, 8, 8) * 0.9
    for _ in range(30):
        fake = generator(flow.randn(8, 8, 1, 1))
        loss_critic = bce(critic(real).squeeze(), ones) + bce(critic(fake.detach()).squeeze(), zeros)
        of_critic.zero_grad()
        loss_critic.backward()
        of_critic.step()
        loss_generator = bce(critic(fake).squeeze(), ones)
        of_generator.zero_grad()
        loss_generator.backward()
        of_generator.step()
    generator.eval()
    with flow.no_grad():
        images = generator(flow.randn(4, 8, 1, 1)).to("cpu").numpy()
    assert images.shape == (4, 1, 8, 8) and images.mean() > 0.3  # towards the constant 0.9


# --------------------------------------------------------------------------- GAN, two optimizers in one graph
def test_gan_with_two_optimizers_in_one_graph_equals_eager():
    def parts():
        flow.manual_seed(1)
        g, d = (
            nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
            nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)),
        )
        return (
            g,
            d,
            flow.optim.Adam(g.parameters(), lr=0.01),
            flow.optim.SGD(d.parameters(), lr=0.05, momentum=0.5),
        )

    def losses(g, d, real, noise):
        fake = g(noise)
        ones, zeros = flow.ones(16, 1), flow.zeros(16, 1)
        bce = nn.functional.binary_cross_entropy_with_logits
        return bce(d(real), ones) + bce(d(fake.detach()), zeros), bce(d(fake), ones)

    def gradients(g, d, real, noise):
        loss_d, loss_g = losses(g, d, real, noise)
        for module, loss in ((d, loss_d), (g, loss_g)):
            parameters = list(module.parameters())
            for p, grad in zip(parameters, flow.autograd.grad(loss, parameters, retain_graph=True)):
                p.grad = grad
        return loss_d, loss_g

    class Gan(nn.Graph):
        def __init__(self, g, d, opt_g, opt_d):
            super().__init__()
            self.g, self.d = g, d
            self.add_optimizer(opt_g), self.add_optimizer(opt_d)

        def build(self, real, noise):
            return gradients(self.g, self.d, real, noise)

    data = [(flow.randn(16, 2) * 0.1 + 1, flow.randn(16, 4)) for _ in range(5)]
    g, d, opt_g, opt_d = parts()
    eager = []
    for real, noise in data:
        pair = gradients(g, d, real, noise)
        opt_g.step(), opt_d.step()
        eager.append([v.item() for v in pair])
    graph = Gan(*parts())
    assert [[v.item() for v in graph(*batch)] for batch in data] == eager


# --------------------------------------------------------------------------- detection
def box_iou(a, b, eps=1e-7):
    """CIoU of boxes (x, y, w, h)."""
    ax1, ax2, ay1, ay2 = (
        a[..., 0] - a[..., 2] / 2,
        a[..., 0] + a[..., 2] / 2,
        a[..., 1] - a[..., 3] / 2,
        a[..., 1] + a[..., 3] / 2,
    )
    bx1, bx2, by1, by2 = (
        b[..., 0] - b[..., 2] / 2,
        b[..., 0] + b[..., 2] / 2,
        b[..., 1] - b[..., 3] / 2,
        b[..., 1] + b[..., 3] / 2,
    )
    inter = (flow.minimum(ax2, bx2) - flow.maximum(ax1, bx1)).clamp(min=0) * (
        flow.minimum(ay2, by2) - flow.maximum(ay1, by1)
    ).clamp(min=0)
    union = a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - inter + eps
    iou = inter / union
    cw, ch = flow.maximum(ax2, bx2) - flow.minimum(ax1, bx1), flow.maximum(ay2, by2) - flow.minimum(ay1, by1)
    rho = ((b[..., 0] - a[..., 0]) ** 2 + (b[..., 1] - a[..., 1]) ** 2) / (cw**2 + ch**2 + eps)
    v = (4 / math.pi**2) * flow.pow(
        flow.atan(b[..., 2] / (b[..., 3] + eps)) - flow.atan(a[..., 2] / (a[..., 3] + eps)), 2
    )
    with flow.no_grad():
        alpha = v / (v - iou + (1 + eps))
    return iou - (rho + v * alpha)


class Detector(nn.Module):
    def __init__(self, anchors, classes):
        super().__init__()
        self.classes, self.count = classes, len(anchors)
        self.register_buffer("anchors", flow.tensor(anchors).float())
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.SiLU()
        )
        self.head = nn.Conv2d(8, self.count * (classes + 5), 1)

    def forward(self, x):
        y = self.head(self.body(x))
        b, _, h, w = y.shape
        return y.view(b, self.count, self.classes + 5, h, w).permute(0, 1, 3, 4, 2).contiguous()


def detection_loss(prediction, targets, anchors, classes):
    """targets: rows (image, class, x, y, w, h) in cells."""
    b, a, gj, gi = (
        targets[:, 0].long(),
        flow.zeros(len(targets), dtype=flow.int64),
        targets[:, 3].long(),
        targets[:, 2].long(),
    )
    picked = prediction[b, a, gj, gi]
    centre = picked[:, :2].sigmoid() * 2 - 0.5 + flow.stack([gi, gj], 1)
    size = (picked[:, 2:4].sigmoid() * 2) ** 2 * anchors[a]
    iou = box_iou(flow.cat((centre, size), 1), targets[:, 2:])
    objects = flow.zeros_like(prediction[..., 0])
    objects[b, a, gj, gi] = iou.detach().clamp(0).to(objects.dtype)
    bce = nn.BCEWithLogitsLoss(pos_weight=flow.tensor([1.0]))
    expected = flow.full_like(picked[:, 5:], 0.0)
    expected[flow.arange(len(targets)), targets[:, 1].long()] = 1.0
    return (1.0 - iou).mean() * 0.05 + bce(prediction[..., 4], objects) + bce(picked[:, 5:], expected) * 0.5


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_detector_loss(graph):
    flow.manual_seed(0)
    model = Detector([[2.0, 2.0], [3.0, 1.0]], classes=3)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
    images = flow.rand(2, 3, 32, 32)
    targets = flow.tensor(
        [[0, 1, 2.3, 2.6, 2.0, 1.5], [1, 2, 5.2, 4.1, 3.0, 2.0], [1, 0, 1.5, 6.5, 1.0, 2.0]]
    )

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, images, targets):
            loss = detection_loss(self.model(images), targets, model.anchors, 3)
            loss.backward()
            return loss

    step, losses = Train(), []
    for _ in range(25):
        if graph:
            losses.append(step(images, targets).item())
        else:
            loss = detection_loss(model(images), targets, model.anchors, 3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    boxes = flow.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert flow.nms(boxes, flow.tensor([0.9, 0.8, 0.7]), 0.5).tolist() == [0, 2]
