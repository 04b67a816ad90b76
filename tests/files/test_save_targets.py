"""Where a save may write: pipes and devices stay, long names work, a full disk is named."""

import os
import stat
import threading

import pytest
import torch

import oneflow as flow
from oneflow import nn

SINGLE_FILES = [{"layout": "torch"}, {"layout": "pickle"}, {"_use_new_zipfile_serialization": False}]


class Doubled(nn.Graph):
    def build(self, x):
        return x * 2


@pytest.fixture(scope="module")
def graph():
    doubled = Doubled()
    doubled.config.set_backend("aten")
    doubled(flow.ones(2))
    return doubled


def _null_device(path):
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    return path


@pytest.mark.parametrize("options", SINGLE_FILES)
@pytest.mark.parametrize("through_link", [False, True])
def test_a_device_is_written_into_and_stays(tmp_path, options, through_link):
    target = device = _null_device(tmp_path / "null")
    if through_link:
        target = tmp_path / "link"
        target.symlink_to(device)
    flow.save({"x": torch.ones(1000)}, target, **options)
    assert stat.S_ISCHR(os.stat(device).st_mode) and sorted(os.listdir(tmp_path)) in (
        ["link", "null"],
        ["null"],
    )


@pytest.mark.parametrize("options", SINGLE_FILES)
def test_a_pipe_carries_the_file(tmp_path, options):
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    flow.save({"x": torch.arange(5000.0)}, pipe, **options)
    reader.join(60)
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    (tmp_path / "copy").write_bytes(received[0])
    assert torch.equal(flow.load(tmp_path / "copy")["x"], torch.arange(5000.0))


def test_the_pickle_of_a_folder_is_not_put_in_place_of_a_device(tmp_path):
    (tmp_path / "c").mkdir()
    _null_device(tmp_path / "c" / "pickled_data")
    flow.save(torch.ones(2), tmp_path / "c", layout="folder")
    assert stat.S_ISCHR(os.stat(tmp_path / "c" / "pickled_data").st_mode)


def test_a_graph_is_not_saved_in_place_of_a_device(tmp_path, graph):
    device = _null_device(tmp_path / "null")
    with pytest.raises(RuntimeError, match="null is a file"):
        flow.save(graph, device)
    (tmp_path / "g").mkdir()
    program = _null_device(tmp_path / "g" / "program.json")
    with pytest.raises(RuntimeError, match=r"program\.json is no regular file"):
        graph.save(tmp_path / "g")
    assert stat.S_ISCHR(os.stat(device).st_mode) and stat.S_ISCHR(os.stat(program).st_mode)


@pytest.mark.parametrize("layout", ["torch", "pickle", "folder"])
@pytest.mark.parametrize("name", ["n" * 241, "n" * 242, "n" * 255, "ä" * 127])
def test_a_name_of_any_length_that_the_system_allows(tmp_path, layout, name):
    for value in (1.0, 2.0):
        flow.save(torch.full((3,), value), tmp_path / name, layout=layout)
    assert flow.load(tmp_path / name).tolist() == [2.0] * 3
    assert os.listdir(tmp_path) == [name]


def test_a_graph_in_a_folder_of_a_long_name(tmp_path, graph):
    graph.save(tmp_path / ("g" * 255))
    assert flow.load_graph(tmp_path / ("g" * 255))(flow.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_names_nothing(graph, path):
    for save in (
        lambda: flow.save(torch.ones(1), path),
        lambda: graph.save(path),
        lambda: flow.save(graph, path),
    ):
        with pytest.raises(ValueError, match="save: a path names a file or folder, found"):
            save()


def test_a_path_of_bytes(graph):
    with pytest.raises(TypeError, match="save: a path is a str or an os.PathLike of one, found bytes"):
        graph.save(b"x")
    with pytest.raises(TypeError, match="save: the target is a path or a binary file, found bytes"):
        flow.save(torch.ones(1), b"x")


@pytest.mark.parametrize("options", SINGLE_FILES)
def test_a_full_device_is_named(tmp_path, options):
    try:
        os.mknod(tmp_path / "full", stat.S_IFCHR | 0o666, os.makedev(1, 7))
    except PermissionError:
        pytest.skip("only root makes devices")
    with pytest.raises(OSError, match="No space left on device: '.*/full'"):
        flow.save({"x": torch.ones(100_000)}, tmp_path / "full", **options)


class Unseekable:
    def read(self, size=-1):
        return b""


def test_object_that_is_no_file_is_a_type_error_and_torchs_attribute_error():
    for error in (TypeError, AttributeError):
        with pytest.raises(error, match="the target is a path or a binary file, found Tensor"):
            flow.save("values", flow.ones(2))
        with pytest.raises(error, match="expected a path or a binary file, found Tensor"):
            flow.load(flow.ones(2))


def test_file_that_cannot_seek_is_named_with_torchs_advice():
    advice = "Unseekable lacks seek.. or tell... You can only torch.load from a file that is seekable"
    with pytest.raises(AttributeError, match=advice):
        flow.load(Unseekable())
