"""Downloads from a server on this machine: progress, ONEFLOW_QUIET and errors."""

import functools
import http.server
import os
import threading
import urllib.error

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.compatible.single_client.data import load_mnist


class SilentHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def site(tmp_path):
    """A function from a file name to its address on a local server."""
    folder = tmp_path / "site"
    folder.mkdir()
    torch.save({"w": torch.ones(2)}, folder / "net-00000000.pth")
    digits, labels = np.zeros((4, 28, 28), np.uint8), np.zeros(4, np.uint8)
    np.savez(folder / "mnist.npz", x_train=digits, y_train=labels, x_test=digits, y_test=labels)
    handler = functools.partial(SilentHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield lambda name: f"http://127.0.0.1:{server.server_port}/{name}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "downloads")


def fetch_weights(site, folder):
    return flow.hub.load_state_dict_from_url(site("net-00000000.pth"), folder)


def fetch_digits(site, folder):
    return load_mnist(2, 2, url=site("mnist.npz"), hash_check=None, out_dir=folder)


@pytest.mark.parametrize("fetch", [fetch_weights, fetch_digits])
def test_progress_on_stderr(site, folder, capsys, monkeypatch, fetch):
    monkeypatch.delenv("ONEFLOW_QUIET", raising=False)
    fetch(site, folder)
    written = capsys.readouterr().err
    assert "oneflow: downloading http://127.0.0.1" in written and "B/s" in written


@pytest.mark.parametrize("fetch", [fetch_weights, fetch_digits])
def test_quiet_download_writes_nothing(site, folder, capsys, monkeypatch, fetch):
    monkeypatch.setenv("ONEFLOW_QUIET", "1")
    fetch(site, folder)
    assert capsys.readouterr().err == ""


def test_missing_weights_are_named(site, folder):
    with pytest.raises(urllib.error.HTTPError, match=r"404.*/none\.pth.*Check the address") as caught:
        flow.hub.load_state_dict_from_url(site("none.pth"), folder)
    assert caught.value.code == 404
    assert os.listdir(folder) == []


def test_missing_data_set_is_named(site, folder):
    with pytest.raises(urllib.error.HTTPError, match=r"404.*/none\.npz.*Check the address"):
        load_mnist(url=site("none.npz"), out_dir=folder)
    assert os.listdir(folder) == []


def test_unreachable_server_is_named(folder):
    with pytest.raises(urllib.error.URLError, match=r"http://127\.0\.0\.1:1/net\.pth.*the network"):
        flow.hub.load_state_dict_from_url("http://127.0.0.1:1/net.pth", folder)


def test_weights_with_another_digest_are_removed(site, folder):
    with pytest.raises(RuntimeError, match=r'expected "00000000".*/net-00000000\.pth was removed'):
        flow.hub.load_state_dict_from_url(site("net-00000000.pth"), folder, check_hash=True)
    assert os.listdir(folder) == []


def test_data_set_with_another_digest_is_removed(site, folder):
    with pytest.raises(ValueError, match=r"/mnist\.npz has the sha256 .* expected 00ff.*was removed"):
        load_mnist(url=site("mnist.npz"), hash_check="00ff", out_dir=folder)
    assert os.listdir(folder) == []
