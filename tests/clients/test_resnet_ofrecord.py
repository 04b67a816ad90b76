"""ResNet-50 on OFRecords as Oneflow-Inc/models trains it: its data loader, label smoothing, warm-up, train
and eval graphs, metrics, checkpoint.
"""

import io

import numpy as np
import pytest

import oneflow as flow
import oneflow.nn as nn

models = pytest.importorskip("flowvision.models")
Image = pytest.importorskip("PIL.Image")
CLASSES = 3


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Red, green and blue JPEGs with noise, as train/part-00000 and -00001 and validation/part-00000."""
    root, draw = tmp_path_factory.mktemp("ofrecord"), np.random.RandomState(0)
    for mode, parts in (("train", 2), ("validation", 1)):
        (root / mode).mkdir()
        for part in range(parts):
            with flow.utils.data.OFRecordWriter(str(root / mode / f"part-{part:05d}")) as out:
                for i in range(12):
                    pixels = draw.randint(0, 120, (48, 40, 3)).astype("uint8")
                    pixels[..., i % CLASSES] += 130
                    data = io.BytesIO()
                    Image.fromarray(pixels).save(data, "JPEG")
                    out.write({"encoded": data.getvalue(), "class/label": np.int32([i % CLASSES])})
    return root


class OFRecordDataLoader(nn.Module):
    def __init__(self, folder, parts, mode, batch_size, size=32, placement=None, sbp=None):
        super().__init__()
        train = mode == "train"
        self.batch_size = batch_size
        self.reader = nn.OFRecordReader(
            str(folder / mode),
            batch_size=batch_size,
            data_part_num=parts,
            part_name_suffix_length=5,
            random_shuffle=train,
            shuffle_after_epoch=train,
            placement=placement,
            sbp=sbp,
        )
        self.label = nn.OFRecordRawDecoder("class/label", shape=tuple(), dtype=flow.int32)
        if train:
            self.image = nn.OFRecordImageDecoderRandomCrop("encoded", color_space="RGB")
            self.resize = nn.image.Resize(target_size=[size, size])
            self.flip = nn.CoinFlip(batch_size=batch_size, placement=placement, sbp=sbp)
        else:
            self.image = nn.OFRecordImageDecoder("encoded", color_space="RGB")
            self.resize = nn.image.Resize(resize_side="shorter", keep_aspect_ratio=True, target_size=size)
            self.flip = None
        self.normalize = nn.CropMirrorNormalize(
            color_space="RGB",
            output_layout="NCHW",
            crop_h=0 if train else size,
            crop_w=0 if train else size,
            crop_pos_y=0.5,
            crop_pos_x=0.5,
            mean=[123.68, 116.779, 103.939],
            std=[58.393, 57.12, 57.375],
            output_dtype=flow.float,
        )

    def forward(self):
        record = self.reader()
        label = self.label(record)
        image = self.resize(self.image(record))[0]
        return self.normalize(image) if self.flip is None else self.normalize(image, self.flip()), label


class LabelSmoothLoss(nn.Module):
    def __init__(self, num_classes=-1, smooth_rate=0.0):
        super().__init__()
        self.num_classes, self.smooth_rate = num_classes, smooth_rate
        self.on_value, self.off_value = 1 - smooth_rate + smooth_rate / num_classes, smooth_rate / num_classes

    def forward(self, input, label):
        onehot = flow._C.one_hot(label, self.num_classes, self.on_value, self.off_value)
        return (flow._C.softmax_cross_entropy(input, onehot.to(dtype=input.dtype))).mean()


class TrainGraph(nn.Graph):
    def __init__(self, model, loss, data_loader, optimizer, schedule, amp):
        super().__init__()
        if amp:
            self.config.enable_amp(True)
            self.set_grad_scaler(flow.amp.StaticGradScaler(128.0))
        self.config.allow_fuse_add_to_output(True)
        self.config.allow_fuse_model_update_ops(True)
        self.data_loader, self.model, self.cross_entropy = data_loader, model, loss
        self.add_optimizer(optimizer, lr_sch=schedule)

    def build(self):
        image, label = self.data_loader()
        image, label = image.to("cpu"), label.to("cpu")
        logits = self.model(image)
        loss = self.cross_entropy(logits, label)
        predictions = logits.softmax()
        loss.backward()
        return loss, predictions, label


class EvalGraph(nn.Graph):
    def __init__(self, model, data_loader):
        super().__init__()
        self.data_loader, self.model = data_loader, model

    def build(self):
        image, label = self.data_loader()
        return self.model(image.to("cpu")).softmax(), label


def train(records, model, amp, steps, folder):
    for name, module in model.named_modules():
        if name.endswith("bn3") or name.endswith("layer1.0.bn2"):
            nn.init.zeros_(module.weight)
    groups = [
        {
            "params": [p for n, p in model.named_parameters() if "bn" not in n and "bias" not in n],
            "weight_decay": 1e-4,
        },
        {"params": [p for n, p in model.named_parameters() if "bn" in n or "bias" in n], "weight_decay": 0.0},
    ]
    optimizer = flow.optim.SGD(groups, lr=0.005, momentum=0.9)
    cosine = flow.optim.lr_scheduler.CosineDecayLR(optimizer, decay_steps=60)
    schedule = flow.optim.lr_scheduler.WarmUpLR(
        cosine, warmup_factor=0, warmup_iters=2, warmup_method="linear"
    )
    graph = TrainGraph(
        model,
        LabelSmoothLoss(CLASSES, 0.1),
        OFRecordDataLoader(records, 2, "train", 12),
        optimizer,
        schedule,
        amp,
    )
    model.train()
    for _ in range(steps):
        loss, predictions, label = graph()
    assert label.dtype == flow.int32 and predictions.shape == (12, CLASSES)
    flow.save(model.state_dict(), str(folder / "model"))
    model.eval()
    evaluate = EvalGraph(model, OFRecordDataLoader(records, 1, "validation", 12))
    predictions, label = evaluate()
    return loss.item(), (flow.argmax(predictions, dim=1).to(flow.int32) == label).sum().item() / 12


def resnet10():
    return models.resnet.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)


def test_resnet10(records, tmp_path):
    flow.manual_seed(0)
    model = resnet10()
    loss, _ = train(records, model, False, 8, tmp_path)
    assert loss < 1.0
    again = resnet10()
    again.load_state_dict(flow.load(str(tmp_path / "model")))
    assert flow.equal(again.fc.weight, model.fc.weight) and again.bn1.num_batches_tracked.item() == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "amp, steps", [(False, 25), (True, 2)], ids=["float32", "amp"]
)  # float16 is slow on a CPU
def test_resnet50(records, tmp_path, amp, steps):
    flow.manual_seed(0)
    loss, accuracy = train(records, models.resnet50(num_classes=CLASSES), amp, steps, tmp_path)
    assert loss < 3.0 if amp else loss < 1.0 and accuracy > 0.6
