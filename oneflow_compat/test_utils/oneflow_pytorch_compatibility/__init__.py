"""Does a PyTorch model file train under oneflow as it does under torch? What OneFlow's compatibility tests
call.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

if TYPE_CHECKING:
    import types


__all__ = ["cos_sim", "do_test_train_loss_oneflow_pytorch", "get_loss", "import_file"]


def cos_sim(vector_a: Any, vector_b: Any) -> float:
    """Cosine of the angle between two vectors, moved from [-1, 1] to [0, 1]."""
    a, b = np.ravel(vector_a), np.ravel(vector_b)
    return float(0.5 + 0.5 * np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))


def import_file(source: str) -> types.ModuleType:
    """The module made by this Python source."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(source)
        file.flush()
        spec: Any = importlib.util.spec_from_file_location("mod", file.name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def get_loss(
    image_nd: Any,
    label_nd: Any,
    model_path: str,
    module_name: str,
    test_pytorch: bool = True,
    device: str = "cuda",
    tmpdirname: str = "/tmp",
    *,
    steps: int = 100,
) -> list[Any]:
    """Losses of `steps` SGD steps of the model class `module_name` of a file, under torch or with `import
    torch` giving oneflow.

    The run under torch leaves its first weights in the folder `tmpdirname`, where the other one finds them.
    """
    import torch

    import oneflow as flow

    with open(model_path, encoding="utf-8") as file:
        source = file.read()
    if test_pytorch:
        library, module = torch, import_file(source)
    else:
        library = flow
        with flow.mock_torch.enable():
            module = import_file(source)
    library.manual_seed(0)
    model = getattr(module, module_name)()
    if test_pytorch:
        flow.save(model.state_dict(), tmpdirname)
    else:
        model.load_state_dict(flow.load(tmpdirname))
    model.to(device)
    optimizer = library.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion, image = library.nn.CrossEntropyLoss().to(device), library.tensor(image_nd).to(device)
    label = library.tensor(label_nd, dtype=library.long).to(device)
    losses = []
    for _ in range(steps):
        loss = criterion(model(image), label)
        loss.backward()
        losses.append(loss.detach().cpu().numpy().copy())
        optimizer.step()
        optimizer.zero_grad()
    return losses


def do_test_train_loss_oneflow_pytorch(
    test_case: Any,
    model_path: str,
    module_name: str,
    device: str = "cuda",
    batch_size: int = 16,
    img_size: int = 224,
    *,
    steps: int = 100,
) -> None:
    """Train the model of a file under both on the same random images; the losses must begin equal and run
    alike.
    """
    images = np.random.rand(batch_size, 3, img_size, img_size).astype(np.float32)
    labels = np.arange(batch_size, dtype=np.int32)
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = (
            get_loss(
                images, labels, os.fspath(model_path), module_name, of_torch, device, folder, steps=steps
            )
            for of_torch in (True, False)
        )
    test_case.assertTrue(
        np.allclose(ours[0], theirs[0], rtol=1e-4), f"first loss: oneflow {ours[0]}, torch {theirs[0]}"
    )
    test_case.assertTrue(cos_sim(ours, theirs) > 0.999, f"losses: oneflow {ours}, torch {theirs}")
