"""GPTIndexedBinDataReader and COCOReader on small generated files."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow._data.coco import BatchStream
from oneflow._data.gpt import SampleStream, TokenFile, split_documents
from oneflow._data.shuffle import MersenneTwister

nn = flow.nn
GOLDEN = Path(__file__).parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("record_readers", GOLDEN / "record_readers.py")
recorded = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recorded)
write_tokens = recorded.write_tokens
EXPECTED = json.loads((GOLDEN / "readers.json").read_text())


@pytest.mark.parametrize("case, expected", list(zip(recorded.TOKENS, EXPECTED["tokens"], strict=True)))
def test_token_samples_are_those_of_oneflow(tmp_path, case, expected):
    name, batches, arguments, options = case
    recorded.make_tokens(tmp_path)
    reader = nn.GPTIndexedBinDataReader(tmp_path / name, *arguments, **options)
    assert [reader().tolist() for _ in range(batches)] == expected


@pytest.mark.parametrize("case, expected", list(zip(recorded.COCO, EXPECTED["coco"], strict=True)))
def test_detection_batches_are_those_of_oneflow(tmp_path, case, expected):
    batches, size, options = case
    recorded.make_coco(tmp_path)
    reader = recorded.coco_reader(flow, tmp_path, size, options)
    assert [[t.tolist() for t in reader()[1:3]] for _ in range(batches)] == expected


def test_a_shuffle_of_more_items_than_one_number_can_place_two_of():
    """std::shuffle changes its method at 65536 items; the checksum is that of a reader of 70000 samples,
    recorded from OneFlow 0.9.0.
    """
    items = list(range(70001))
    shuffle = MersenneTwister(3).shuffle
    shuffle([0])
    samples = list(range(70000))
    shuffle(samples)
    assert sum(i * s for i, s in enumerate(samples, 1)) == 85924414696741 and sorted(samples) == items[:-1]


@pytest.fixture
def prefix(tmp_path):
    write_tokens(tmp_path / "text", [list(range(0, 5)), list(range(10, 13)), list(range(20, 29)), [30]])
    return tmp_path / "text"


@pytest.mark.parametrize("dtype,code", [(np.uint8, 1), (np.int32, 4), (np.int64, 5), (np.uint16, 8)])
def test_token_file(tmp_path, dtype, code):
    write_tokens(tmp_path / "t", [[1, 2, 3], [], [4]], dtype, code)
    tokens = TokenFile(tmp_path / "t")
    assert [tokens.document(i).tolist() for i in range(len(tokens))] == [
        [1, 2, 3],
        [],
        [4],
    ] and tokens.dtype == dtype


def test_sequences_in_order(prefix):
    """Documents joined, cut every 4 tokens, neighbours sharing one; 4 samples make an epoch, which starts at
    the first document.
    """
    reader = nn.GPTIndexedBinDataReader(prefix, seq_length=4, num_samples=4, batch_size=2, shuffle=False)
    joined = [*range(0, 5), *range(10, 13), *range(20, 29), 30]
    want = [joined[i : i + 5] for i in (0, 4, 8, 12)]
    assert [reader().tolist() for _ in range(4)] == [want[:2], want[2:], want[:2], want[2:]]
    assert reader().dtype is flow.int64
    assert nn.GPTIndexedBinDataReader(prefix, 4, 4, 2, dtype=flow.int32)().dtype is flow.int32


def test_more_samples_than_one_pass_holds(prefix):
    reader = nn.GPTIndexedBinDataReader(prefix, seq_length=17, num_samples=3, batch_size=3, shuffle=False)
    joined = [*range(0, 5), *range(10, 13), *range(20, 29), 30] * 4
    assert reader().tolist() == [joined[i : i + 18] for i in (0, 17, 34)]


def test_shuffle_is_by_seed_and_complete(prefix):
    def epoch(seed):
        return nn.GPTIndexedBinDataReader(prefix, 4, 4, 4, random_seed=seed)().tolist()

    assert epoch(1) == epoch(1) and any(epoch(s) != epoch(1) for s in range(2, 6))
    flat = [t for row in epoch(3) for t in row]
    assert set(flat) <= {*range(0, 5), *range(10, 13), *range(20, 29), 30} and len(set(flat)) > 10


def test_splits_and_ranks(prefix, monkeypatch):
    assert [list(split_documents(10, [8, 1, 1], i)) for i in range(3)] == [list(range(8)), [8], [9]]
    assert list(split_documents(3, None, None)) == [0, 1, 2]
    reader = nn.GPTIndexedBinDataReader(prefix, 2, 2, 1, shuffle=False, split_sizes=[1, 1], split_index=1)
    assert reader().tolist() == [[20, 21, 22]]
    with pytest.raises(ValueError, match="split_index must be in 0..1"):
        nn.GPTIndexedBinDataReader(prefix, 2, 2, 1, split_sizes=[1, 1], split_index=2)
    tokens = TokenFile(prefix)
    whole, first, second = (
        iter(SampleStream(tokens, 3, 6, False, 0, rank=r, ranks=n)) for r, n in ((0, 1), (0, 2), (1, 2))
    )
    for _ in range(6):
        assert next(whole).tolist() == next(first).tolist() and next(whole).tolist() == next(second).tolist()


def test_damaged_token_files(prefix, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.idx"):
        TokenFile(tmp_path / "nothing")
    (tmp_path / "text.bin").write_bytes(b"\0" * 10)
    with pytest.raises(RuntimeError, match="text.bin: truncated"):
        TokenFile(prefix)
    body = (tmp_path / "text.idx").read_bytes()
    for bad, text in (
        (b"NOTMEGATRON" + body[11:], "not a Megatron index"),
        (body[:50], "truncated or unknown"),
        (body[:17] + b"\x63" + body[18:], "element type 99"),
    ):
        (tmp_path / "text.idx").write_bytes(bad)
        with pytest.raises(RuntimeError, match=text):
            TokenFile(prefix)


# --------------------------------------------------------------------------- COCO
@pytest.fixture
def coco(tmp_path):
    pil = pytest.importorskip("PIL.Image", reason="needs pillow")
    images, annotations = [], []
    for i, (w, h) in enumerate([(40, 30), (20, 30), (36, 24), (18, 28), (50, 20), (10, 10)]):
        pil.fromarray(np.full((h, w, 3), 40 * i, np.uint8)).save(tmp_path / f"{i}.jpg")
        images.append({"id": 100 + i, "file_name": f"{i}.jpg", "width": w, "height": h})
    add = lambda image, category, bbox, segm, **more: annotations.append(
        {"image_id": image, "category_id": category, "bbox": bbox, "segmentation": segm, "iscrowd": 0, **more}
    )
    for i in range(5):
        add(100 + i, 18, [1, 2, 10, 12], [[1, 2, 11, 2, 11, 14]])
    add(100, 3, [5, 5, 100, 6], [[5, 5, 9, 5, 9, 9], [1, 1, 2, 2, 3, 1]])
    add(101, 3, [0, 0, 5, 5], {"counts": [1], "size": [1, 1]}, iscrowd=1)
    add(105, 3, [0, 0, 1, 5], [[0, 0, 1, 0, 1, 5]])  # too thin to count
    path = tmp_path / "annotations.json"
    path.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 18}, {"id": 3}]})
    )
    return path


def test_coco_batches(coco):
    reader = nn.COCOReader(
        str(coco), str(coco.parent), batch_size=1, shuffle=False, group_by_aspect_ratio=False
    )
    image, image_id, image_size, bbox, label, segm, index = reader()
    assert (
        image_id.tolist() == [100]
        and image_size.tolist() == [[30, 40]]
        and image_id.dtype is flow.int64
        and image_size.dtype is flow.int32
    )
    assert nn.image.decode(color_space="RGB")(image).cells[0].shape == (30, 40, 3)
    # labels count categories in the order of their ids; a box ends inside the image
    assert label.cells[0].tolist() == [2, 1] and bbox.cells[0].tolist() == [[1, 2, 10, 13], [5, 5, 39, 10]]
    assert segm.cells[0].shape == (9, 2) and index.cells[0].tolist() == [
        [0, 0, 0],
        [1, 0, 0],
        [2, 0, 0],
        [0, 0, 1],
        [1, 0, 1],
        [2, 0, 1],
        [0, 1, 1],
        [1, 1, 1],
        [2, 1, 1],
    ]
    ids = [reader()[1].item() for _ in range(5)]
    assert ids == [101, 102, 103, 104, 100]  # 105 has no annotation that counts


def test_coco_groups_by_shape(coco):
    reader = nn.COCOReader(str(coco), str(coco.parent), batch_size=2, random_seed=3)
    seen = set()
    for _ in range(20):
        _, ids, sizes, *_ = reader()
        wide = sizes[:, 1] > sizes[:, 0]
        assert wide.all() or not wide.any()
        seen |= set(ids.tolist())
    assert seen == {100, 101, 102, 103, 104}


def test_coco_ranks_and_errors(coco, tmp_path):
    def first(**options):
        stream = BatchStream(str(coco), str(coco.parent), 1, False, 0, False, False, **options)
        batches = iter(stream)
        return [next(batches)[1][0] for _ in range(3)]

    assert first(stride_partition=True, rank=1, ranks=2) == [101, 103, 105]
    assert first(stride_partition=False, rank=1, ranks=2) == [103, 104, 105]
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(flow.CheckpointError, match="bad.json: .*annotations, categories, images missing"):
        nn.COCOReader(str(tmp_path / "bad.json"), ".", 1)
    (tmp_path / "none.json").write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    with pytest.raises(ValueError, match="no image is left"):
        nn.COCOReader(str(tmp_path / "none.json"), ".", 1)
    assert isinstance(nn.COCOReader(str(coco), str(coco.parent), 1)()[1], torch.Tensor)
