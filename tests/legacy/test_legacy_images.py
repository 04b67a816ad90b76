"""Images, boxes and polygons inside jobs."""

import io

import numpy as np
import pytest
from legacy_jobs import job_of, result_of_job

import oneflow.compatible.single_client as flow

rng = np.random.default_rng(6)


def test_keep_aspect_ratio_crop_and_random_crop(dataset):
    folder, kept = dataset

    def body():
        records = flow.data.ofrecord_loader(folder, batch_size=4)
        image, label = flow.data.OFRecordImageDecoderRandomCrop(records, "encoded", color_space="BGR"), None
        rsz = flow.image.resize(image, resize_side="shorter", keep_aspect_ratio=True, target_size=20)
        return flow.image.crop_mirror_normalize(
            rsz[0], color_space="BGR", crop_h=18, crop_w=16, crop_pos_y=0.5, crop_pos_x=0.5
        ), label

    out, _ = job_of(body, [])()
    assert out.shape == (4, 3, 18, 16) and out.std() > 10


def test_image_functions_on_buffers(dataset):
    _, kept = dataset
    data = rng.integers(0, 256, (2, 6, 5, 3)).astype(np.float32)

    def buffer(x):
        return flow.tensor_to_tensor_buffer(x, instance_dims=3)

    def back(b, shape=(6, 5, 3)):
        return flow.tensor_buffer_to_tensor(b, dtype=flow.float, instance_shape=shape)

    np.testing.assert_array_equal(
        result_of_job(lambda x: back(flow.image_flip(buffer(x), flip_code=1)), data), data[:, :, ::-1]
    )
    np.testing.assert_array_equal(
        result_of_job(lambda x: back(flow.image.flip(buffer(x), flip_code=-1)), data), data[:, ::-1, ::-1]
    )
    codes = np.array([0, 1], np.int8)
    got = result_of_job(lambda x, c: back(flow.image_flip(buffer(x), c)), data, codes)
    np.testing.assert_array_equal(got, np.stack([data[0, ::-1], data[1, :, ::-1]]))
    got = result_of_job(
        lambda x: back(flow.image_normalize(buffer(x), std=(1.0, 2.0, 4.0), mean=(10.0, 20.0, 30.0))), data
    )
    np.testing.assert_allclose(got, (data - [10, 20, 30]) / [1, 2, 4], rtol=1e-6)
    out, size, scale = result_of_job(
        lambda x: (lambda r: (back(r[0], (12, 10, 3)), r[1], r[2]))(
            flow.image_target_resize(buffer(x), target_size=10, max_size=30)
        ),
        data,
    )
    assert size.tolist() == [[12, 10]] * 2 and scale.tolist() == [[2, 2]] * 2
    out, scale, none = result_of_job(
        lambda x: flow.image_resize(buffer(x), target_size=(10, 12), interpolation_type="nearest_neighbor"),
        data,
    )
    np.testing.assert_array_equal(out, data.repeat(2, 1).repeat(2, 2))
    assert scale.tolist() == [[2, 2]] * 2 and none is None
    crops = result_of_job(
        lambda x: [c for c in flow.image_random_crop(buffer(x), random_area=[0.4, 0.6], seed=3)], data
    )
    assert all(c.shape[0] <= 6 and c.shape[1] <= 5 and c.shape[0] * c.shape[1] < 30 for c in crops)
    encoded = io.BytesIO()
    __import__("PIL.Image").Image.fromarray(kept[0][2]).save(encoded, "PNG")
    raw = np.frombuffer(encoded.getvalue(), np.uint8)[None].copy()
    got = result_of_job(
        lambda x: next(iter(flow.image_decode(flow.tensor_to_tensor_buffer(x, 1), color_space="BGR"))), raw
    )
    np.testing.assert_array_equal(got, kept[0][2][:, :, ::-1])
    with pytest.raises(ValueError, match="flip_code must be"):
        result_of_job(lambda x: back(flow.image.flip(buffer(x), 7)), data)


def test_crop_mirror_normalize_of_a_blob():
    x = rng.integers(0, 256, (2, 6, 6, 3)).astype(np.uint8)
    flips = np.array([0, 1], np.int8)
    got = result_of_job(
        lambda a, m: flow.image.crop_mirror_normalize(
            a,
            mirror_blob=m,
            crop_h=4,
            crop_w=2,
            crop_pos_y=0.0,
            crop_pos_x=1.0,
            output_layout="NHWC",
            mean=[1.0],
            std=[2.0],
        ),
        x,
        flips,
    )
    part = (x[:, :4, 4:].astype(np.float32) - 1) / 2
    np.testing.assert_allclose(got, np.stack([part[0], part[1, :, ::-1]]), rtol=1e-6)


def test_boxes_and_polygons():
    boxes = np.array([[[1, 2, 5, 6], [0, 0, 3, 3]]], np.float32)
    size = np.array([[20, 10]], np.int32)
    scale = np.array([[2.0, 3.0]], np.float32)
    points = np.array([[[1, 1], [7, 1], [7, 4], [1, 4]]], np.float32)

    def on(function, dims=2):
        return lambda b, *rest: function(flow.tensor_to_tensor_buffer(b, dims), *rest)

    def first(function):
        return lambda *a: next(iter(function(*a)))

    d = flow.detection
    got = result_of_job(first(on(lambda b, s: d.object_bbox_flip(b, s, flip_code=1))), boxes, size)
    assert got.tolist() == [[10 - 5 - 1, 2, 10 - 1 - 1, 6], [10 - 3 - 1, 0, 10 - 0 - 1, 3]]
    assert result_of_job(first(on(d.object_bbox_scale)), boxes, scale).tolist() == [
        [3, 4, 15, 12],
        [0, 0, 9, 6],
    ]
    assert result_of_job(first(on(lambda p, s: d.object_segmentation_polygon_flip(p, s, 1))), points, size)[
        0
    ].tolist() == [9, 1]
    assert result_of_job(first(on(d.object_segmentation_polygon_scale)), points, scale)[1].tolist() == [21, 2]
    index = np.array([[[k, 0, 0] for k in range(4)]], np.int32)
    mask = result_of_job(
        first(
            lambda p, i, s: d.object_segmentation_polygon_to_mask(
                flow.tensor_to_tensor_buffer(p, 2), flow.tensor_to_tensor_buffer(i, 2), s
            )
        ),
        points,
        index,
        size,
    )
    expected = np.zeros((1, 20, 10), np.int8)
    expected[0, 1:4, 1:7] = 1
    np.testing.assert_array_equal(mask, expected)
    for name in (
        "object_bbox_flip",
        "object_bbox_scale",
        "object_segmentation_polygon_flip",
        "object_segmentation_polygon_scale",
        "object_segmentation_polygon_to_mask",
    ):
        assert getattr(flow, name) is getattr(d, name)
    with pytest.raises(NotImplementedError, match="legacy-bbox-flip"):
        result_of_job(
            lambda b, s: next(iter(d.object_bbox_flip(flow.tensor_to_tensor_buffer(b, 2), s, b))), boxes, size
        )


def test_detection_pipeline_with_images_of_different_sizes(tmp_path):
    """COCO reader, decoding, resizing, scaled boxes: as the detection scripts do, with batches of varying
    shape.
    """
    import json

    Image = pytest.importorskip("PIL.Image")
    infos, annotations = [], []
    for i, (h, w) in enumerate([(40, 60), (30, 50), (44, 44)]):
        Image.fromarray(np.full((h, w, 3), 10 * i, np.uint8)).save(tmp_path / f"{i}.png")
        infos.append(dict(id=i, file_name=f"{i}.png", height=h, width=w))
        annotations.append(
            dict(
                id=i,
                image_id=i,
                category_id=3,
                iscrowd=0,
                area=100,
                bbox=[4, 6, 10 + i, 20],
                segmentation=[[4, 6, 14, 6, 14, 26]],
            )
        )
    (tmp_path / "a.json").write_text(
        json.dumps(dict(images=infos, annotations=annotations, categories=[dict(id=3, name="c")]))
    )

    def body():
        image, image_id, size, box, label, segm, index = flow.data.coco_reader(
            annotation_file=str(tmp_path / "a.json"),
            image_dir=str(tmp_path),
            batch_size=1,
            shuffle=False,
            stride_partition=False,
            name="coco",
        )
        pixels = flow.image_decode(image, dtype=flow.float)
        resized, new_size, scale = flow.image_target_resize(
            pixels, target_size=20, max_size=40, resize_side="shorter"
        )
        boxes = flow.object_bbox_scale(box, scale)
        batch = flow.image_batch_align(resized, shape=(40, 40, 3), dtype=flow.float, alignment=8)
        return batch, flow.tensor_buffer_to_tensor(boxes, dtype=flow.float, instance_shape=(1, 4)), image_id

    job = job_of(body, [])
    ids = []
    for _ in range(4):
        batch, boxes, image_id = job()
        i = int(image_id[0])
        ids.append(i)
        h, w = infos[i]["height"], infos[i]["width"]
        f = 20 / min(h, w)
        new_h, new_w = round(h * f), round(w * f)
        assert batch.shape == (1, -(-new_h // 8) * 8, -(-new_w // 8) * 8, 3) and batch[0, 0, 0, 0] == 10 * i
        x, y, bw, bh = annotations[i]["bbox"]
        right, below = boxes[0, 0, 2] / (new_w / w), boxes[0, 0, 3] / (new_h / h)
        assert abs(right - (x + bw)) <= 1 and abs(below - (y + bh)) <= 1
    assert ids == [0, 1, 2, 0] and job.last.eager  # no batch was lost when the shape changed
