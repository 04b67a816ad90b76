"""vit-pytorch, an unchanged PyTorch library, with `import torch` replaced by `import oneflow as torch`.

The installed package is copied twice, unchanged and with its imports of torch replaced. With the same seed,
the outputs and gradients of each model must be bitwise equal in both copies. (Both copies have an empty
__init__.py, because the original imports torchvision.)
"""

import importlib
import importlib.util
import pathlib
import re
import shutil
import sys

import pytest
import torch

import oneflow as flow

SPEC = importlib.util.find_spec("vit_pytorch")
if SPEC is None:
    pytest.skip("needs vit-pytorch", allow_module_level=True)
ROOT = pathlib.Path(SPEC.origin).parent
ORIGINAL, COPY = "vit_pytorch_on_torch", "vit_pytorch_on_oneflow"


def replaced(text):
    """Every import of torch in a source text, made an import of oneflow."""
    text = re.sub(r"^(\s*)import torch\s*$", r"\1import oneflow as torch", text, flags=re.M)
    return re.sub(r"^(\s*)(import|from) torch(\.[\w.]+)?(\s)", r"\1\2 oneflow\3\4", text, flags=re.M)


@pytest.fixture(scope="module", autouse=True)
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vit")
    for package, change in ((ORIGINAL, str), (COPY, replaced)):
        shutil.copytree(ROOT, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (folder / package).rglob("*.py"):
            file.write_text(
                re.sub(r"\bvit_pytorch\.", f"{package}.", change(file.read_text()))
                if file.name != "__init__.py"
                else ""
            )
    sys.path.insert(0, str(folder))
    yield folder / COPY
    sys.path.remove(str(folder))
    for name in [n for n in sys.modules if n.split(".")[0] in (ORIGINAL, COPY)]:
        del sys.modules[name]


def test_the_copy_uses_oneflow_only(copy):
    texts = [f.read_text() for f in copy.rglob("*.py")]
    assert sum("import oneflow as torch" in t for t in texts) > 50
    left = [
        line for t in texts for line in t.splitlines() if re.match(r"\s*(import|from) torch(\.|\s|$)", line)
    ]
    assert not left


IMAGE = "torch.randn(2, 3, 32, 32)"
SMALL = "image_size=32, num_classes=5"
VIT = f"{SMALL}, patch_size=8, dim=32, depth=2, heads=2, mlp_dim=32"
MODELS = {
    "vit": (f"ViT({VIT}, dropout=0.1, emb_dropout=0.1)", IMAGE),
    "simple_vit": (f"SimpleViT({VIT})", IMAGE),
    "cct": (
        "CCT(img_size=32, embedding_dim=32, n_conv_layers=1, num_layers=2, num_heads=2, num_classes=5)",
        IMAGE,
    ),
    "mobile_vit": (
        (
            "MobileViT(image_size=(64, 64), dims=[24, 32, 40], channels=[8, 8, 16, 16, 24, 24, 32, 32,"
            " 40, 40, 48], num_classes=5)"
        ),
        "torch.randn(2, 3, 64, 64)",
    ),
    "max_vit": (
        "MaxViT(num_classes=5, dim=16, depth=(1, 1), dim_head=8, dim_conv_stem=16, window_size=4)",
        IMAGE,
    ),
    "levit": (
        f"LeViT({SMALL}, stages=2, dim=(16, 24), depth=1, heads=(2, 2), mlp_mult=2, dropout=0.1)",
        IMAGE,
    ),
    "deepvit": (f"DeepViT({VIT})", IMAGE),
    "cait": (
        f"CaiT({SMALL}, patch_size=8, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=32, layer_dropout=0.05)",
        IMAGE,
    ),
    "t2t": (f"T2TViT({SMALL}, dim=32, depth=1, heads=2, mlp_dim=32, t2t_layers=((7, 4), (3, 2)))", IMAGE),
    "cross_vit": (
        (
            f"CrossViT({SMALL}, depth=1, sm_dim=16, sm_patch_size=8, sm_enc_heads=2, sm_enc_mlp_dim=16,"
            f" lg_dim=24, lg_patch_size=16, lg_enc_heads=2, lg_enc_mlp_dim=16)"
        ),
        IMAGE,
    ),
    "pit": (f"PiT({SMALL}, patch_size=8, dim=32, depth=(1, 1), heads=2, mlp_dim=32)", IMAGE),
    "cvt": (
        (
            "CvT(num_classes=5, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=24, s1_depth=1, s2_depth=1,"
            " s3_depth=1, s1_heads=1, s2_heads=2, s3_heads=2)"
        ),
        IMAGE,
    ),
    "twins_svt": (
        "TwinsSVT(num_classes=5, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=16, s4_emb_dim=16,"
        " s1_patch_size=2, s1_local_patch_size=4, s2_local_patch_size=4, "
        "s3_local_patch_size=2, s4_local_patch_size=2, s1_global_k=2, s2_global_k=2, s3_global_k=2,"
        " s4_global_k=2, "
        "s1_depth=1, s2_depth=1, s3_depth=1, s4_depth=1)",
        "torch.randn(2, 3, 64, 64)",
    ),
    "crossformer": (
        (
            "CrossFormer(num_classes=5, dim=(32, 32, 32, 32), depth=(1, 1, 1, 1), global_window_size=(4,"
            " 2, 2, 1), local_window_size=2)"
        ),
        "torch.randn(2, 3, 64, 64)",
    ),
    "scalable_vit": (
        (
            "ScalableViT(num_classes=5, dim=16, heads=(2, 2), depth=(1, 1), ssa_dim_key=(8, 8),"
            " reduction_factor=(2, 1), window_size=(4, None), dropout=0.1)"
        ),
        IMAGE,
    ),
    "sep_vit": (
        "SepViT(num_classes=5, dim=16, dim_head=8, heads=(1, 2), depth=(1, 1), window_size=7, dropout=0.1)",
        "torch.randn(2, 3, 56, 56)",
    ),
    "nest": (f"NesT({SMALL}, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1))", IMAGE),
    "regionvit": (
        (
            "RegionViT(num_classes=5, dim=(8, 16, 16, 16), depth=(1, 1, 1, 1), window_size=2,"
            " tokenize_local_3_conv=False, use_peg=False)"
        ),
        "torch.randn(2, 3, 64, 64)",
    ),
    "rvt": (f"RvT({VIT})", IMAGE),
    "xcit": (f"XCiT({SMALL}, patch_size=8, dim=32, depth=2, cls_depth=1, heads=2, mlp_dim=32)", IMAGE),
    "vit_for_small_dataset": (f"ViT({VIT})", IMAGE),
    "parallel_vit": (f"ViT({VIT}, num_parallel_branches=2)", IMAGE),
    "learnable_memory_vit": (f"ViT({VIT})", IMAGE),
    "ats_vit": (f"ViT({VIT}, max_tokens_per_depth=(12, 8))", IMAGE),
    "vit_with_patch_merger": (f"ViT({VIT}, patch_merge_layer=1, patch_merge_num_tokens=4)", IMAGE),
    "vit_with_patch_dropout": (f"ViT({VIT}, patch_dropout=0.25)", IMAGE),
    "simple_vit_with_register_tokens": (f"SimpleViT({VIT}, num_register_tokens=2)", IMAGE),
    "simple_vit_with_qk_norm": (f"SimpleViT({VIT})", IMAGE),
    "simple_vit_with_fft": (f"SimpleViT({VIT}, freq_patch_size=8)", IMAGE),
    "normalized_vit": (
        f"nViT({SMALL}, patch_size=8, dim=32, depth=2, heads=2, dim_head=16, mlp_dim=32)",
        IMAGE,
    ),
    "simple_vit_1d": (
        "SimpleViT(seq_len=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=32)",
        "torch.randn(2, 3, 32)",
    ),
    "simple_vit_3d": (
        (
            "SimpleViT(image_size=16, image_patch_size=8, frames=4, frame_patch_size=2, num_classes=5,"
            " dim=36, depth=1, heads=2, mlp_dim=32)"
        ),
        "torch.randn(2, 3, 4, 16, 16)",
    ),
    "vivit": (
        (
            "ViViT(image_size=16, image_patch_size=8, frames=4, frame_patch_size=2, num_classes=5,"
            " dim=32, spatial_depth=1, temporal_depth=1, heads=2, mlp_dim=32)"
        ),
        "torch.randn(2, 3, 4, 16, 16)",
    ),
    "na_vit": (
        (
            "NaViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=32,"
            " token_dropout_prob=0.1)"
        ),
        "[[torch.randn(3, 16, 24), torch.randn(3, 24, 16)], [torch.randn(3, 8, 32)]]",
    ),
}


def outcome(package, module, model, inputs):
    """Everything that can differ: the outputs in training mode and every gradient."""
    names = vars(importlib.import_module(f"{package}.{module}"))
    torch.manual_seed(0)
    net = eval(model, dict(names))
    x = eval(inputs, {"torch": torch})
    out = net(x)
    (out.float() * torch.arange(out.numel()).reshape(out.shape)).sum().backward()
    return {
        "out": out.detach(),
        **{n: p.grad for n, p in net.named_parameters()},
        **{"weight " + n: p.detach() for n, p in net.named_parameters()},
    }


@pytest.mark.parametrize("module", MODELS)
def test_a_copy_for_oneflow_computes_the_same_bits(module):
    want = outcome(ORIGINAL, module, *MODELS[module])
    got = outcome(COPY, module, *MODELS[module])
    assert got.keys() == want.keys() and len(got) > 10
    for name, value in want.items():
        assert (got[name] is None) == (value is None), name
        assert value is None or torch.equal(got[name], value), name


def test_every_module_imports():
    """Modules that can be imported with torch can be imported with oneflow (some need torchvision or
    torchaudio).
    """
    imported = 0
    for file in sorted(ROOT.glob("*.py")):
        try:
            importlib.import_module(f"{ORIGINAL}.{file.stem}")
        except ImportError:
            continue
        importlib.import_module(f"{COPY}.{file.stem}")
        imported += 1
    assert imported > 50
    assert flow.nn.Module is torch.nn.Module
