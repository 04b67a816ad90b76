"""Readers, random blobs and quantization inside jobs."""

import numpy as np
import pytest
from legacy_jobs import gradient, job_of, result_of_job

import oneflow.compatible.single_client as flow
from oneflow._data import images

rng = np.random.default_rng(6)


def test_ofrecord_reader_gives_the_next_batch_in_each_call(dataset):
    folder, kept = dataset
    bodies = []

    def body():
        bodies.append(1)
        records = flow.data.ofrecord_reader(folder, batch_size=2, data_part_num=1, name="reader")
        x = flow.data.OFRecordRawDecoder(records, "x", shape=(4,), dtype=flow.float)
        return x * 2, flow.data.ofrecord_raw_decoder(records, "label", shape=(1,), dtype=flow.int32)

    job = job_of(body, [])
    for step in range(5):
        x, label = job()
        expected = [(2 * step + k) % 8 for k in range(2)]
        assert label[:, 0].tolist() == expected
        np.testing.assert_allclose(x, 2 * np.stack([kept[i][0] for i in expected]), rtol=1e-6)
    assert len(bodies) == 1 and not job.last.eager


def test_image_pipeline_of_the_benchmarks(dataset):
    folder, kept = dataset
    mean, std = [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]

    def body():
        records = flow.data.ofrecord_reader(folder, batch_size=4)
        image = flow.data.OFRecordImageDecoder(records, "encoded", color_space="RGB")
        resized = flow.image.Resize(image, target_size=[8, 6])
        flip = flow.random.CoinFlip(batch_size=4, probability=1.0)
        normal = flow.image.CropMirrorNormalize(
            resized[0], mirror_blob=flip, color_space="RGB", output_layout="NCHW", mean=mean, std=std
        )
        return normal, resized[0], flip

    job = job_of(body, [])
    for step in range(2):
        normal, resized, flip = job()
        expected = np.stack([images.resize(kept[4 * step + k][2], 8, 6, "auto") for k in range(4)])
        np.testing.assert_array_equal(resized, expected)
        assert flip.tolist() == [1] * 4
        np.testing.assert_allclose(
            normal,
            ((expected[:, :, ::-1] - np.array(mean)) / np.array(std)).transpose(0, 3, 1, 2),
            rtol=1e-5,
            atol=1e-5,
        )


def test_classification_reader_and_older_codecs(dataset):
    folder, kept = dataset

    def body():
        image, label = flow.data.ofrecord_image_classification_reader(
            folder, image_feature_name="encoded", label_feature_name="label", batch_size=2, color_space="RGB"
        )
        blobs = flow.data.decode_ofrecord(
            folder,
            [
                flow.data.BlobConf(
                    name="encoded",
                    shape=(8, 8, 3),
                    dtype=flow.float,
                    codec=flow.data.ImageCodec(
                        [flow.data.ImagePreprocessor("bgr2rgb"), flow.data.ImageResizePreprocessor(8, 8)]
                    ),
                    preprocessors=[flow.data.NormByChannelPreprocessor((10.0, 20.0, 30.0))],
                ),
                flow.data.BlobConf(name="x", shape=(4,), dtype=flow.float, codec=flow.data.RawCodec()),
            ],
            batch_size=2,
        )
        return flow.image.resize(image, resize_x=8, resize_y=8, color_space="RGB"), label, *blobs

    pixels, label, normal, x = job_of(body, [])()
    assert label.tolist() == [[0], [1]]
    expected = np.stack([images.resize(kept[i][2], 8, 8, "auto") for i in range(2)])
    np.testing.assert_array_equal(pixels, expected)
    np.testing.assert_allclose(normal, expected - np.array([10.0, 20.0, 30.0]), rtol=1e-6)
    np.testing.assert_allclose(x, np.stack([kept[i][0] for i in range(2)]))


def test_bytes_decoder_and_decoder_random_crop_resize(dataset):
    folder, kept = dataset

    def body():
        records = flow.data.ofrecord_reader(folder, batch_size=2)
        encoded = flow.data.OFRecordBytesDecoder(records, "encoded")
        whole = flow.data.ImageDecoderRandomCropResize(
            encoded, target_width=5, target_height=7, random_area=[1.0, 1.0], random_aspect_ratio=[1.0, 1.0]
        )
        pixels = flow.image.decode(encoded, color_space="RGB")
        return whole, flow.image.batch_align(pixels, shape=(16, 16, 3), dtype=flow.float, alignment=8)

    whole, aligned = job_of(body, [])()
    assert whole.shape == (2, 7, 5, 3) and whole.dtype == np.uint8
    assert aligned.shape == (2, 16, 16, 3)
    np.testing.assert_array_equal(aligned[0, :10, :12], kept[0][2])
    assert (aligned[0, 10:] == 0).all() and (aligned[:, :, 12:] == 0).all()


def test_onerec_files(tmp_path):
    from oneflow.utils.data import OneRecWriter

    path = str(tmp_path / "records")
    with OneRecWriter(path) as out:
        for i in range(4):
            out.write({"x": np.full((i + 1, 2), i, np.float32)})

    def build():
        records = flow.data.onerec_reader([path], batch_size=2)
        return flow.data.onerec_decoder(records, "x", flow.float, (4, 2), batch_padding=(4, 0)) * 2

    job = job_of(build, [])
    assert [job().sum() for _ in range(3)] == [2 * 4, 2 * (2 * 6 + 3 * 8), 2 * 4]


def test_what_readers_refuse():
    with pytest.raises(NotImplementedError, match="legacy-data-readers"):
        flow.data.MegatronGPTMMapDataLoader("p", 1, 1, 1, start_from_saved_progress=True)
    with pytest.raises(TypeError, match="takes the records of a reader"):
        result_of_job(
            lambda x: flow.data.OFRecordRawDecoder(x, "x", (1,), flow.float), np.zeros(1, np.float32)
        )


def test_megatron_loader(tmp_path):
    import struct

    tokens = np.arange(40, dtype=np.int32)
    (tmp_path / "gpt.bin").write_bytes(tokens.tobytes())
    sizes = np.array([20, 20], np.int32)
    pointers = np.array([0, 80], np.int64)
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 2, 3)
    (tmp_path / "gpt.idx").write_bytes(
        head + sizes.tobytes() + pointers.tobytes() + np.array([0, 1, 2], np.int64).tobytes()
    )
    job = job_of(
        lambda: flow.data.megatron_gpt_mmap_data_loader(
            data_file_prefix=str(tmp_path / "gpt"),
            seq_length=7,
            num_samples=8,
            batch_size=2,
            dtype=flow.int64,
            shuffle=False,
            random_seed=1,
        ),
        [],
    )
    batch = job()
    assert batch.shape == (2, 8) and batch.dtype == np.int64 and (np.diff(batch, axis=1) == 1).all()
    assert (job() != batch).any()


def test_older_spellings_are_the_same_functions():
    d, i = flow.data, flow.image
    for old, new in (
        (d.ofrecord_raw_decoder, d.OFRecordRawDecoder),
        (d.ofrecord_bytes_decoder, d.OFRecordBytesDecoder),
        (d.ofrecord_image_decoder, d.OFRecordImageDecoder),
        (d.ofrecord_image_decoder_random_crop, d.OFRecordImageDecoderRandomCrop),
        (d.image_decoder_random_crop_resize, d.ImageDecoderRandomCropResize),
        (d.onerec_decoder, d.OneRecDecoder),
        (d.megatron_gpt_mmap_data_loader, d.MegatronGPTMMapDataLoader),
        (i.Resize, i.resize),
        (i.CropMirrorNormalize, i.crop_mirror_normalize),
        (flow.image_normalize, i.normalize),
        (flow.image_random_crop, i.random_crop),
        (flow.image_target_resize, i.target_resize),
        (flow.image_batch_align, i.batch_align),
        (flow.random.CoinFlip, flow.random.coin_flip),
    ):
        assert old is new
    codec = d.ImageCodec([d.ImagePreprocessor("mirror")])
    assert (
        codec.do_mirror()
        and not codec.do_resize()
        and codec.color_space() == "BGR"
        and d.ImagePreprocessor("bgr2rgb").is_rgb()
    )
    assert d.NormByChannelPreprocessor((1.0,), data_format="channels_first").output_layout() == "NCHW"
    with pytest.raises(ValueError, match="ImagePreprocessor"):
        d.ImagePreprocessor("blur")


def test_decode_random_is_the_same_in_each_call():
    job = job_of(
        lambda: flow.data.decode_random(
            shape=(3, 2), dtype=flow.float, batch_size=4, initializer=flow.random_normal_initializer(seed=1)
        ),
        [],
    )
    first = job()
    assert first.shape == (4, 3, 2) and first.std() > 0.3
    np.testing.assert_array_equal(job(), first)


def test_load_mnist_from_a_local_file(tmp_path):
    x = rng.integers(0, 256, (25, 28, 28)).astype(np.uint8)
    y = np.arange(25) % 10
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x[:11], y_test=y[:11])
    (images_, labels), (test_images, test_labels) = flow.data.load_mnist(
        10, 5, url=str(tmp_path / "mnist.npz")
    )
    assert (
        images_.shape == (2, 10, 1, 28, 28)
        and images_.dtype == np.float32
        and test_labels.shape == (2, 5)
        and labels.dtype == np.int32
    )
    np.testing.assert_allclose(images_[1, 3, 0], x[13] / 255, rtol=1e-6)
    (nhwc, _), _ = flow.data.load_mnist(10, 5, data_format="NHWC", url=str(tmp_path / "mnist.npz"))
    assert nhwc.shape == (2, 10, 28, 28, 1)
    with pytest.raises(FileNotFoundError, match="no address to fetch"):
        flow.data.load_mnist(url="missing.npz", out_dir=str(tmp_path / "none"))


# ---------------------------------------------------------------- random
def test_random_blobs():
    p = np.full((100, 100), 0.3, np.float32)
    job = job_of(lambda x: flow.random.bernoulli(x, dtype=flow.int8), [p])
    a, b = job(p), job(p)
    assert set(np.unique(a)) == {0, 1} and abs(a.mean() - 0.3) < 0.02 and (a != b).any()
    seeded = job_of(lambda x: flow.random.bernoulli(x, seed=5), [p], name="seeded")
    assert abs(seeded(p).mean() - 0.3) < 0.02
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    shuffled = result_of_job(lambda v: flow.random.shuffle(v), x)
    assert sorted(shuffled[:, 0].tolist()) == x[:, 0].tolist()
    index = result_of_job(lambda v: flow.random.generate_random_batch_permutation_indices(v, seed=2), x)
    assert sorted(index.tolist()) == list(range(10)) and index.dtype == np.int32
    coins = result_of_job(lambda: flow.random.coin_flip(batch_size=1000, seed=1, probability=0.2))
    assert coins.dtype == np.int8 and abs(coins.mean() - 0.2) < 0.05
    assert flow.random.gen_seed(3) == (3, True) and flow.random.gen_seed()[1] is False


# ---------------------------------------------------------------- quantization
def test_observers_and_fake_quantization():
    x = rng.normal(size=(3, 4)).astype(np.float32)
    scale, zero = result_of_job(lambda b: flow.quantization.min_max_observer(b), x)
    np.testing.assert_allclose(scale, [abs(x).max() / 127], rtol=1e-6)
    assert zero.tolist() == [0]
    scale, zero = result_of_job(
        lambda b: flow.quantization.min_max_observer(
            b, quantization_scheme="affine", per_layer_quantization=False
        ),
        x,
    )
    np.testing.assert_allclose(scale, (x.max(1) - x.min(1)) / 255, rtol=1e-5)
    np.testing.assert_allclose(zero, -np.round(x.min(1) / scale))
    scale, _ = result_of_job(
        lambda b: flow.quantization.min_max_observer(b, quantization_formula="cambricon"), x
    )
    assert scale[0] == np.floor(np.log2(abs(x).max())) - 6

    def fake(b):
        s, z = flow.quantization.min_max_observer(b)
        return flow.quantization.fake_quantization(b, s, z)

    out, grad = gradient(fake, x)
    step = abs(x).max() / 127
    np.testing.assert_allclose(out, np.clip(np.round(x / step), -128, 127) * step, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(grad, np.ones_like(x))
    with pytest.raises(ValueError, match="quantization_scheme"):
        result_of_job(lambda b: flow.quantization.min_max_observer(b, quantization_scheme="odd"), x)


def test_moving_average_observer():
    def body(b):
        w = flow.get_variable("w", shape=(1,), initializer=flow.ones_initializer())
        scale, _ = flow.quantization.moving_average_min_max_observer(b, momentum=0.9, name="ob")
        flow.optimizer.SGD(0.0).minimize(w * 1)
        return scale

    one = np.array([1.0, -0.5], np.float32)
    job = job_of(body, [one], "train")
    assert job(one)[0] == pytest.approx(1 / 127)
    assert job(3 * one)[0] == pytest.approx((0.9 * 1 + 0.1 * 3) / 127)
    assert job(one)[0] == pytest.approx((0.9 * 1.2 + 0.1) / 127)
