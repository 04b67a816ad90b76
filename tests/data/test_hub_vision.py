"""oneflow.hub, utils.model_zoo and utils.vision, on local files and file:// addresses."""

import gzip
import hashlib
import os
import shutil
import struct

import numpy as np
import pytest
import torch

import oneflow as flow


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(flow.hub, "_folder", None)
    monkeypatch.setenv("ONEFLOW_HOME", str(tmp_path / "home"))
    return flow.hub


def test_folders(hub, tmp_path, monkeypatch):
    assert hub.get_dir() == str(tmp_path / "home" / "hub")
    monkeypatch.delenv("ONEFLOW_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert hub.get_dir() == str(tmp_path / "cache" / "oneflow" / "hub")
    hub.set_dir(tmp_path / "mine")
    assert hub.get_dir() == str(tmp_path / "mine")
    assert torch.hub.get_dir() != hub.get_dir()


@pytest.mark.parametrize("kind", ["torch", "pickle", "zipped folder", "zipped older folder"])
def test_weights_from_an_address(hub, tmp_path, kind):
    state = {"w": torch.arange(3.0)}
    source = tmp_path / "site" / "net"
    if kind.startswith("zipped"):
        flow.save(state, source, save_as_external_data=True)
        if "older" in kind:
            (source / "pickled_data").unlink()
            (source / "tensor_0").rename(source / "w")
            (source / "snapshot_done").touch()
        source = shutil.make_archive(str(tmp_path / "site" / "net"), "zip", tmp_path / "site", "net")
    else:
        flow.save(state, source, layout=kind)
    for _ in range(2):  # the second time from the cache
        out = flow.utils.model_zoo.load_url(f"file://{source}", progress=False)
        assert out["w"].tolist() == [0, 1, 2]
        if os.path.isfile(source):
            os.unlink(source)
    assert os.listdir(tmp_path / "home" / "hub" / "checkpoints")


def test_hash_is_checked(hub, tmp_path):
    torch.save({"w": torch.ones(1)}, tmp_path / "x")
    digest = hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()[:8]
    for name, good in ((f"net-{digest}.pth", True), ("net-00000000.pth", False)):
        shutil.copy(tmp_path / "x", tmp_path / name)
        if good:
            assert (
                hub.load_state_dict_from_url(f"file://{tmp_path / name}", check_hash=True, progress=False)[
                    "w"
                ].item()
                == 1
            )
        else:
            with pytest.raises(RuntimeError, match="invalid hash value"):
                hub.load_state_dict_from_url(f"file://{tmp_path / name}", check_hash=True, progress=False)


def test_local_repository(hub, tmp_path):
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['torch']\ndef net(n):\n    'A layer.'\n    import oneflow as flow\n"
        "    return flow.nn.Linear(n, 1)\n"
    )
    net = hub.load(str(tmp_path), "net", 3, source="local")
    assert isinstance(net, torch.nn.Linear) and net.in_features == 3
    with pytest.raises(RuntimeError, match="Cannot find callable other"):
        hub.load(str(tmp_path), "other", source="local")


def test_mnist_from_files(tmp_path):
    """Real MNIST files of three 28x28 images, made here, through oneflow.utils.vision."""
    pytest.importorskip("flowvision", reason="needs the package flowvision")
    images = np.random.RandomState(0).randint(0, 256, (3, 28, 28)).astype(np.uint8)
    for cls in ("MNIST", "FashionMNIST"):
        raw = tmp_path / cls / "raw"
        raw.mkdir(parents=True)
        for part in ("train", "t10k"):
            (raw / f"{part}-images-idx3-ubyte").write_bytes(
                struct.pack(">IIII", 2051, 3, 28, 28) + images.tobytes()
            )
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, 3) + bytes([7, 1, 4]))
            for kind in ("images-idx3", "labels-idx1"):
                with gzip.open(raw / f"{part}-{kind}-ubyte.gz", "wb") as file:
                    file.write((raw / f"{part}-{kind}-ubyte").read_bytes())
        from oneflow.utils.vision import transforms

        dataset = getattr(flow.utils.vision.datasets, cls)(
            root=str(tmp_path), train=True, download=False, transform=transforms.ToTensor()
        )
        x, y = dataset[2]
        assert len(dataset) == 3 and y == 4 and x.shape == (1, 28, 28)
        np.testing.assert_array_equal((x.numpy()[0] * 255).round().astype(np.uint8), images[2])
        batch = next(iter(flow.utils.data.DataLoader(dataset, batch_size=3)))
        assert batch[0].shape == (3, 1, 28, 28) and batch[1].tolist() == [7, 1, 4]


def test_transforms():
    pytest.importorskip("flowvision", reason="needs the package flowvision")
    import oneflow.utils.vision.transforms as T
    import oneflow.utils.vision.transforms.functional as F

    x = torch.arange(2 * 4 * 4, dtype=torch.float32).reshape(2, 4, 4)
    assert torch.equal(F.hflip(x), x.flip(-1)) and torch.equal(T.CenterCrop(2)(x), x[:, 1:3, 1:3])
    assert torch.equal(T.Compose([T.Normalize([1.0, 1.0], [2.0, 2.0])])(x), (x - 1) / 2)


@pytest.mark.parametrize("repository", ["resnet", "a/b/c", "", 3])
def test_what_is_no_name_of_a_repository_is_refused(repository):
    for ask in (flow.hub.list, lambda name: flow.hub.help(name, "m"), lambda name: flow.hub.load(name, "m")):
        with pytest.raises(ValueError, match=f"'owner/name:branch', found {repository!r}"):
            ask(repository)
