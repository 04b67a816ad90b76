"""Addresses of torch's documentation: the page of a name that is torch's own object."""
import inspect
import re
from urllib.parse import quote

SITE = "https://docs.pytorch.org/docs/stable/"
# Modules whose functions and classes have a page each, generated/NAME.html. Longer names come first.
GENERATED = (
    "torch.nn.functional", "torch.nn.utils.rnn", "torch.nn.utils.prune", "torch.nn.utils", "torch.nn",
    "torch.optim.lr_scheduler", "torch.optim", "torch.linalg", "torch.fft", "torch.autograd.functional", "torch.cuda",
    "torch.Tensor", "torch")
# Modules that are one page, on which each name is an anchor.
ONE_PAGE = {
    "torch.nn.init": "nn.init", "torch.special": "special", "torch.distributions": "distributions",
    "torch.utils.data": "data", "torch.distributed": "distributed", "torch.autograd": "autograd",
    "torch.profiler": "profiler", "torch.amp": "amp", "torch.fx": "fx", "torch.jit": "jit", "torch.onnx": "onnx",
    "torch.multiprocessing": "multiprocessing", "torch.backends": "backends", "torch.hub": "hub"}
VALUES = {"dtype": "tensor_attributes", "layout": "tensor_attributes", "memory_format": "tensor_attributes"}


def torch_name(name, target, resolve):
    """Return the name of an object of oneflow in torch, or an empty string if only its value is torch's."""
    short = name.rpartition(".")[2]
    same_path = "torch" + name.removeprefix("oneflow")
    for candidate in (same_path, f"torch.{short}", f"torch.nn.functional.{short}", f"torch.Tensor.{short}", f"torch.nn.{short}"):
        if resolve(candidate)[0] is target and target is not None:
            return candidate
    module, qualified = getattr(target, "__module__", None) or "", getattr(target, "__qualname__", "")
    return f"{module}.{qualified}" if module.split(".")[0] == "torch" and qualified else ""


def torch_page(name, target, resolve):
    """Return (name in torch, address): the page of the name, or else a search for it."""
    full = torch_name(name, target, resolve)
    if not full:
        return "", ""
    if type(target).__name__ in VALUES:
        return full, f"{SITE}{VALUES[type(target).__name__]}.html"
    is_public = not any(part.startswith("_") for part in full.split("."))
    if is_public and inspect.getdoc(target):
        for module in sorted(ONE_PAGE, key=len, reverse=True):
            if full.startswith(module + ".") and not full.startswith("torch.autograd.functional."):
                return full, f"{SITE}{ONE_PAGE[module]}.html#{full}"
        page = generated_page(full)
        if page:
            return full, page
    return full, f"{SITE}search.html?q={quote(full)}"


def generated_page(full):
    """Return the address of a name's own page, or of its class's page with the name as an anchor."""
    module = next((m for m in GENERATED if full.startswith(m + ".")), "")
    rest = full[len(module) + 1:]
    if re.fullmatch(r"\w+", rest):
        return f"{SITE}generated/{full}.html"
    if re.fullmatch(r"[A-Z]\w*\.\w+", rest):
        return f"{SITE}generated/{full.rpartition('.')[0]}.html#{full}"
    return ""
