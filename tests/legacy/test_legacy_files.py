"""Snapshots, saved models, inference sessions, summaries."""

import os
import struct

import numpy as np
import pytest
import torch
from legacy_jobs import job_of

import oneflow.compatible.single_client as flow
import oneflow.typing as tp
from oneflow import CheckpointError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def variable_job(initializer=None, name="job"):
    def body():
        with flow.scope.namespace("net"):
            return flow.get_variable(
                "w", shape=(2, 3), initializer=initializer or flow.random_normal_initializer()
            )

    return job_of(body, [], name=name)


def test_snapshot_round_trip(tmp_path):
    job = variable_job()
    before = job()
    flow.checkpoint.save(str(tmp_path / "a"))
    restored = flow.checkpoint.get(str(tmp_path / "a"))
    assert (
        set(restored) == {"net-w"}
        and restored["net-w"].shape == (2, 3)
        and restored["net-w"].dtype == flow.float32
    )
    np.testing.assert_array_equal(restored["net-w"].numpy(), before)
    assert (tmp_path / "a" / "net-w" / "out").read_bytes() == before.tobytes()
    assert (
        tmp_path / "a" / "net-w" / "meta"
    ).read_text() == "shape {\n  dim: 2\n  dim: 3\n}\ndata_type: kFloat\n"
    assert (tmp_path / "a" / "snapshot_done").exists()
    flow.clear_default_session()
    other = variable_job()
    flow.load_variables(flow.checkpoint.get(str(tmp_path / "a")))
    np.testing.assert_array_equal(other(), before)
    flow.checkpoint.save(str(tmp_path / "b"), {"renamed": flow.get_all_variables()["net-w"]})
    assert set(flow.checkpoint.get(str(tmp_path / "b"))) == {"renamed"}
    with pytest.raises(FileExistsError, match="is not empty"):
        flow.checkpoint.save(str(tmp_path / "a"))
    with pytest.raises(FileNotFoundError, match="no folder"):
        flow.checkpoint.get(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="cannot be the name of a folder"):
        flow.checkpoint.save(str(tmp_path / "c"), {"../w": X})


def test_a_snapshot_of_the_first_layout_has_raw_values_only(tmp_path):
    os.makedirs(tmp_path / "net-w")
    (tmp_path / "net-w" / "out").write_bytes((X + 1).tobytes())
    job = variable_job()
    check = flow.train.CheckPoint()
    check.load(str(tmp_path))
    np.testing.assert_array_equal(job(), X + 1)
    (tmp_path / "net-w" / "out").write_bytes(b"1234")
    with pytest.raises(CheckpointError, match="truncated or altered.*found 4"):
        check.load(str(tmp_path))


def _shorten(path):
    path.write_bytes(path.read_bytes()[:-4])


def _link_out(path):
    outside = path.parents[2] / "outside"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(outside)


def _pipe(path):
    path.unlink()
    os.mkfifo(path)


def _alter(path):
    path.write_bytes(b"\xff" * len(path.read_bytes()))


@pytest.mark.parametrize("file", ["out", "meta"])
@pytest.mark.parametrize("damage", [_shorten, _link_out, _pipe, _alter])
def test_a_damaged_snapshot_is_a_readable_error_and_nothing_is_loaded(tmp_path, file, damage):
    job = job_of(
        lambda: [
            flow.get_variable(name, shape=(2, 3), initializer=flow.ones_initializer()) for name in ("a", "b")
        ],
        [],
    )
    job()
    snapshot = tmp_path / "snapshot"
    flow.checkpoint.save(str(snapshot), {"a": X, "b": X})
    damage(snapshot / "b" / file)
    with pytest.raises(CheckpointError, match=f"snapshot/b/{file}"):
        flow.load_variables(flow.checkpoint.get(str(snapshot)))
    for value in job():
        np.testing.assert_array_equal(value, np.ones((2, 3)))


@pytest.mark.parametrize(
    "values", [None, [1], {"a": np.zeros((2, 3)), "b": np.full((2, 3), "text")}], ids=["none", "list", "text"]
)
def test_values_that_are_no_arrays_of_numbers_change_nothing(values):
    job = job_of(
        lambda: [
            flow.get_variable(name, shape=(2, 3), initializer=flow.ones_initializer()) for name in ("a", "b")
        ],
        [],
    )
    job()
    with pytest.raises(TypeError, match="load_variables"):
        flow.load_variables(values)
    for value in job():
        np.testing.assert_array_equal(value, np.ones((2, 3)))


def test_a_save_that_fails_leaves_no_variables(tmp_path):
    with pytest.raises(TypeError, match="variable 'b' has dtype"):
        flow.checkpoint.save(str(tmp_path / "snapshot"), {"a": X, "b": np.array(["text"])})
    assert not (tmp_path / "snapshot").exists()


def test_init_draws_anew_and_the_manager_keeps_numbered_snapshots(tmp_path):
    job = variable_job()
    first = job()
    manager = flow.train.SimpleCheckPointManager(str(tmp_path), prefix="s_")
    assert manager.latest_checkpoint() is None
    manager.initialize_or_restore()
    second = job()
    assert (second != first).any()
    manager.save()
    flow.train.CheckPoint().init()
    third = job()
    manager.save()
    assert len(manager.list_checkpoints()) == 2 and manager.latest_checkpoint() == max(
        manager.list_checkpoints()
    )
    flow.train.CheckPoint().init()
    manager.initialize_or_restore()
    np.testing.assert_array_equal(job(), third)


def test_top_level_save_and_load(tmp_path):
    value = variable_job()()
    flow.save(flow.get_all_variables(), str(tmp_path / "s"))
    np.testing.assert_array_equal(flow.load(str(tmp_path / "s"))["net-w"].numpy(), value)
    flow.save({"a": torch.ones(2)}, str(tmp_path / "t"))
    assert flow.load(str(tmp_path / "t"))["a"].tolist() == [1, 1]


def test_saved_model_and_inference_session(tmp_path):
    names = {}

    @flow.global_function(type="predict")
    def infer(image: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        names["image"] = image.logical_blob_name
        y = flow.layers.dense(image, 4, kernel_initializer=flow.random_normal_initializer(), name="fc")
        out = flow.nn.softmax(y)
        names["out"] = out.logical_blob_name
        return out

    expected = infer(X)
    builder = flow.saved_model.ModelBuilder(str(tmp_path / "m"))
    graph = builder.ModelName("model").Version(1).AddFunction(infer)
    signature = graph.AddSignature("regress")
    signature.Input("image", names["image"]).Output("probabilities", names["out"])
    assert (
        signature.OwnerGraphBuilder() is graph
        and graph.OwnerModelBuilder() is builder
        and graph.name == "infer"
        and signature.name == "regress"
    )
    signature.AsDefault()
    graph.AsDefault().Finish()
    assert (
        graph.finished and graph.proto["default_signature"] == "regress" and builder.proto["name"] == "model"
    )
    builder.Save()
    with pytest.raises(FileExistsError):
        builder.Save()
    assert flow.serving.saved_model_builder.GetInterfaceBlobConf("infer", names["image"]) == {
        "shape": [2, 3],
        "dtype": "float32",
    }
    flow.checkpoint.save(
        str(tmp_path / "other"),
        {"fc-weight": np.zeros((4, 3), np.float32), "fc-bias": np.zeros(4, np.float32)},
    )

    flow.clear_default_session()
    with flow.serving.InferenceSession() as session:
        session.load_saved_model(str(tmp_path / "m"))
        session.launch()
        assert (
            session.list_jobs() == ["infer"]
            and session.list_inputs() == ["image"]
            and session.list_outputs() == ["probabilities"]
        )
        assert session.input_info("image") == {"shape": (2, 3), "dtype": np.float32}
        assert session.output_info("probabilities", "infer") == {"shape": (2, 4), "dtype": np.float32}
        np.testing.assert_allclose(session.run("infer", image=X)["probabilities"], expected, rtol=1e-6)
        np.testing.assert_allclose(
            session.async_run("infer", image=X).result()["probabilities"], expected, rtol=1e-6
        )
        with pytest.raises(ValueError, match=r"input 'image' is \(2, 3\) float32"):
            session.run("infer", image=X.T)
        with pytest.raises(TypeError, match=r"takes the inputs \['image'\]"):
            session.run("infer", picture=X)
        session.set_job_batch_size("infer", 2)
        with pytest.raises(NotImplementedError, match="legacy-serving-batch"):
            session.set_job_batch_size("infer", 5)
        with pytest.raises(NotImplementedError, match="legacy-serving-ops"):
            session.compile([])
        session.wait_for_all_jobs_finished()
    with pytest.raises(RuntimeError, match="closed"):
        session.run("infer", image=X)

    session = flow.serving.InferenceSession(flow.serving.SessionOption())
    session.set_checkpoint_path(str(tmp_path / "other"))
    session.load_saved_model(str(tmp_path / "m"), model_version=1, signature_name="regress")
    with pytest.raises(RuntimeError, match="launch"):
        session.run("infer", image=X)
    session.launch()
    np.testing.assert_allclose(session.run("infer", image=X)["probabilities"], 0.25, rtol=1e-6)
    with pytest.raises(KeyError, match="no signature 'nothing'"):
        session.load_saved_model(str(tmp_path / "m"), signature_name="nothing")


def test_saved_model_refuses_what_cannot_be_saved(tmp_path):
    builder = flow.saved_model.ModelBuilder(str(tmp_path / "m"))
    with pytest.raises(ValueError, match="add a job function first"):
        builder.Save()
    with pytest.raises(ValueError, match="is a train job"):
        builder.AddFunction(job_of(lambda x: x, [X], "train"))
    graph = builder.AddFunction(job_of(lambda x: x * 2, [X], name="p"))
    graph.AddSignature("s").Input("x", "Input_3/out")
    with pytest.raises(ValueError, match="is no input of job p"):
        graph.Finish()
    with pytest.raises(ValueError, match="was added already"):
        graph.AddSignature("s")
    assert flow.saved_model.SignatureBuilder("t").Input("a", "b/c").proto == {
        "inputs": {"a": "b/c"},
        "outputs": {},
    }
    with pytest.raises(ValueError, match='looks like "op/blob"'):
        flow.serving.saved_model_builder.Lbn2Lbi("x")
    assert flow.serving.saved_model_builder.Lbi2Lbn(("x", "out")) == "x/out"


# ---------------------------------------------------------------- event files
def events(folder):
    """Payloads of the records of the only event file, checksums verified with an independent CRC."""
    (name,) = [n for n in os.listdir(folder) if "tfevents" in n]
    data, out = (folder / name).read_bytes(), []

    def crc(b):
        c = 0xFFFFFFFF
        for byte in b:
            c ^= byte
            for _ in range(8):
                c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
        c ^= 0xFFFFFFFF
        return ((c >> 15 | c << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF

    while data:
        (n,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == crc(data[:8])
        payload = data[12 : 12 + n]
        assert struct.unpack("<I", data[12 + n : 16 + n])[0] == crc(payload)
        out.append(payload)
        data = data[16 + n :]
    return out


def test_summaries_from_jobs_and_outside(tmp_path):
    with pytest.raises(RuntimeError, match="create_summary_writer"):
        import oneflow.compatible.single_client.summary._writer as w

        w._writer = None
        flow.summary.flush_summary_writer()
    flow.summary.create_summary_writer(str(tmp_path))
    tag = np.frombuffer(b"loss", np.int8).copy()

    def body(value, step, name):
        flow.summary.scalar(value, step, name)
        flow.summary.histogram(value, step, name)

    job = job_of(body, [np.ones(1, np.float32), np.ones(1, np.int64), tag])
    job(np.array([2.5], np.float32), np.array([7], np.int64), tag)
    job(np.array([3.5], np.float32), np.array([8], np.int64), tag)
    flow.summary.image(np.zeros((1, 4, 5, 3), np.uint8), step=3, tag="picture")
    flow.summary.pb(flow.summary.text("hello", "note"), step=4)
    H = flow.summary.HParam
    flow.summary.pb(
        flow.summary.hparams(
            {
                H("lr", flow.summary.RealRange(0.1, 0.2)): 0.1,
                H("n", flow.summary.IntegerRange(1, 9)): 3,
                H("opt", flow.summary.ValueSet(["sgd", "adam"])): "adam",
                flow.summary.Metric("acc"): 0,
            }
        ),
        step=5,
    )
    flow.summary.flush_summary_writer()
    recorded = events(tmp_path)
    assert b"brain.Event:2" in recorded[0] and len(recorded) == 8
    assert b"loss" in recorded[1] and struct.pack("<f", 2.5) in recorded[1] and b"\x10\x07" in recorded[1]
    assert (
        struct.pack("<d", 2.5) in recorded[2]
        and struct.pack("<f", 3.5) in recorded[3]
        and b"\x10\x08" in recorded[3]
    )
    assert b"picture" in recorded[5] and b"PNG" in recorded[5]
    assert b"hello" in recorded[6] and b"note" in recorded[6]
    assert (
        all(w in recorded[7] for w in (b"hparams", b"lr", b"adam", struct.pack("<d", 0.1)))
        and b"acc" not in recorded[7]
    )


def test_ranges_of_hyper_parameters():
    s = flow.summary
    assert (
        s.IntegerRange(1, 2).max_value == 2
        and s.RealRange(0.5, 1.0).min_value == 0.5
        and s.ValueSet([1, 2]).dtype is int
        and s.ValueSet([1]).values == [1]
    )
    assert s.HParam("a", int).name == "a" and s.Metric("m").dtype is float
    for bad in (lambda: s.IntegerRange(2, 1), lambda: s.RealRange(2.0, 1.0)):
        with pytest.raises(ValueError):
            bad()
    for bad in (
        lambda: s.IntegerRange(0.5, 1),
        lambda: s.RealRange(1, 2),
        lambda: s.ValueSet([1, "a"]),
        lambda: s.hparams([1]),
    ):
        with pytest.raises(TypeError):
            bad()
