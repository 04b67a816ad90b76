"""Each custom operator against its torch composition, torch.compile of it, and a copy of the same bytes.

    python tests/benchmarks/ops.py [name ...] [--device cuda] [--no-backward] [--no-compile] [--seconds 0.25]
        [--json FILE]

Prints the table of docs/operators.md: milliseconds, medians of rounds that take the candidates in turn. ours;
plain, the torch composition; compiled, torch.compile of it; torch, the one call of torch that does the same,
where there is one; copy, a copy of half the bytes read and written: the time memory alone would take. Freed
memory stays with the process, as under nn.Graph: else each result of more than 32 MB is memory the kernel has
to clear first, which takes longer than any operator. "plain / ours" is the median of the rounds' ratios, "of
copy" copy / ours. The gradient's columns walk a kept graph again: ours, plain, their ratio.
"""

import argparse
import json
import platform
import statistics
import time

import torch

import oneflow
from oneflow._graph.compile.memory import keep_freed_memory
from oneflow._kernels import (
    _ext,
    activation,
    detection,
    embedding,
    losses,
    optimizer_updates,
    quantization,
    references,
    rotary,
    softmax,
)
from oneflow._kernels import image as image_ops

C = oneflow._C
f32 = torch.float32


def cases(device):
    """(name, inputs, ours, plain, memory-bound, differentiable)."""

    def rand(*shape, low=-1.0, high=1.0):
        return torch.empty(shape, device=device).uniform_(low, high)

    big, wide = rand(4096, 4096), rand(4096)
    scores, mask = rand(8, 12, 512, 512), torch.rand(8, 1, 512, 512, device=device) > 0.3
    yield (
        "fused_bias_add_gelu",
        (big, wide),
        lambda x, b: C.fused_bias_add_gelu(x, b, axis=1),
        lambda x, b: references.fused_bias_add_gelu_ref(x, b, 1),
        True,
        True,
    )
    yield (
        "fused_bias_add_dropout",
        (big, wide),
        lambda x, b: C.fused_bias_add_dropout(x, b, p=0.1, axis=1),
        lambda x, b: activation.fused_bias_add_dropout_ref(x, b, 0.1, 1),
        True,
        True,
    )
    yield (
        "fused_scale_mask_softmax",
        (scores, mask),
        lambda x, m: C.fused_scale_mask_softmax(x, m, fill_value=-1e4, scale=0.1),
        lambda x, m: softmax.fused_scale_mask_softmax_ref(x, m, -1e4, 0.1),
        True,
        True,
    )

    def plain_softmax_dropout(x, m):
        y = softmax.fused_scale_mask_softmax_ref(x, m, -1e4, 0.1)
        return torch.nn.functional.dropout(y, 0.1), y

    yield (
        "fused_scale_mask_softmax_dropout",
        (scores, mask),
        lambda x, m: C.fused_scale_mask_softmax_dropout(x, m, fill_value=-1e4, scale=0.1, p=0.1),
        plain_softmax_dropout,
        True,
        True,
    )
    yield (
        "fused_scale_tril",
        (scores,),
        lambda x: C.fused_scale_tril(x, 0, 0.0, 0.5),
        lambda x: softmax.fused_scale_tril_ref(x, 0, 0.0, 0.5),
        True,
        True,
    )

    def plain_tril(x):
        y = torch.softmax(softmax.fused_scale_tril_ref(x, 0, -1e4, 0.1), -1)
        return torch.nn.functional.dropout(y, 0.1), y

    yield (
        "fused_scale_tril_softmax_mask_scale",
        (scores,),
        lambda x: C.fused_scale_tril_softmax_mask_scale(
            x, p=0.1, diagonal=0, tril_scale_value=0.1, tril_fill_value=-1e4
        ),
        plain_tril,
        True,
        True,
    )
    heads, (cos, sin) = (
        rand(8, 12, 512, 64),
        rotary.angles(64, torch.arange(512, device=device), 1e4, "plane", f32),
    )
    for mode in ("plane", "interval"):
        yield (
            f"fused_apply_rotary_emb {mode}",
            (heads, cos, sin),
            lambda x, c, s, m=mode: C.fused_apply_rotary_emb(x, cos=c, sin=s, mode=m),
            lambda x, c, s, m=mode: rotary.rotate_ref(x.transpose(1, 2), c[None], s[None], m).transpose(1, 2),
            True,
            True,
        )
    yield "quick_gelu", (big,), activation.quick_gelu, references.quick_gelu_ref, True, True
    yield "square_relu", (big,), activation.square_relu, references.square_relu_ref, True, True
    yield (
        "fused_fast_gelu_mul",
        (big, rand(4096, 4096)),
        C.fused_fast_gelu_mul,
        references.fused_fast_gelu_mul_ref,
        True,
        True,
    )
    features = rand(2048, 27, 128)
    yield (
        "fused_dot_feature_interaction",
        (features,),
        lambda x: C.fused_dot_feature_interaction([x]),
        lambda x: references.fused_dot_feature_interaction_ref(x, None, False, 0),
        False,
        True,
    )
    eight = tuple(rand(100_000, low=0.1) for _ in range(8))
    yield (
        "fused_get_boundding_boxes_coord",
        eight,
        C.fused_get_boundding_boxes_coord,
        references.coord_ref,
        True,
        True,
    )
    yield (
        "fused_get_intersection_area",
        eight,
        C.fused_get_intersection_area,
        references.intersection_ref,
        True,
        True,
    )
    yield (
        "fused_get_iou",
        eight[:5],
        lambda *x: C.fused_get_iou(*x, 1e-7),
        lambda *x: references.iou_ref(*x, 1e-7),
        True,
        True,
    )
    yield (
        "fused_get_convex_diagonal_squared",
        eight,
        lambda *x: C.fused_get_convex_diagonal_squared(*x, 1e-7),
        lambda *x: references.convex_ref(*x, 1e-7),
        True,
        True,
    )
    yield "fused_get_center_dist", eight, C.fused_get_center_dist, references.center_dist_ref, True, True
    yield (
        "fused_get_ciou_diagonal_angle",
        eight[:4],
        lambda *x: C.fused_get_ciou_diagonal_angle(*x, 1e-7),
        lambda *x: references.angle_ref(*x, 1e-7),
        True,
        True,
    )
    yield (
        "fused_get_ciou_result",
        eight[:4],
        lambda *x: C.fused_get_ciou_result(*x, 1e-7)[0],
        lambda *x: references.ciou_ref(*x, 1e-7)[0],
        True,
        True,
    )
    one, zero = torch.tensor([0.01], device=device), torch.tensor([0.0], device=device)

    def plain_fake(x, s, z):
        q, s, z = quantization._rounded("fake_quantization", x, s, z, "google", 8, "symmetric")
        return (q - z) * s

    yield (
        "fake_quantization",
        (big, one, zero),
        lambda x, s, z: C.fake_quantization(x, s, z, "google", 8, "symmetric"),
        plain_fake,
        True,
        False,
    )
    corners = rand(2000, 2, low=0, high=100)
    boxes = torch.cat((corners, corners + rand(2000, 2, low=5, high=40)), 1)
    yield "nms", (boxes,), lambda b: C.nms(b, 0.5), lambda b: detection.nms_mask_ref(b, 0.5, -1), False, False
    image = rand(2, 64, 50, 50)
    regions = torch.cat(
        (
            torch.randint(0, 2, (64, 1), device=device).float(),
            rand(64, 2, low=0, high=100),
            rand(64, 2, low=110, high=390),
        ),
        1,
    )
    yield (
        "roi_align",
        (image, regions),
        lambda x, r: C.roi_align(x, r, 0.125, 7, 7, 2, True),
        lambda x, r: detection.roi_align_ref(x, r, 0.125, 7, 7, 2, True),
        False,
        True,
    )
    offset, modulation = rand(2, 18, 50, 50), rand(2, 9, 50, 50)
    how = [3, 3], [1, 1], [1, 1], [1, 1], 1
    yield (
        "deform_conv2d columns",
        (image, offset, modulation),
        lambda x, o, m: torch.ops.oneflow.deform_columns(x, o, m, *how),
        lambda x, o, m: references.deform_columns_ref(x, o, m, *how),
        False,
        True,
    )
    log_probs, lengths = rand(200, 32, 80), torch.full((32,), 180, device=device)
    yield (
        "ctc_greedy_decoder",
        (log_probs, lengths),
        C.ctc_greedy_decoder,
        lambda x, n: losses.ctc_greedy_decoder_ref(x, n, True),
        False,
        False,
    )
    ids = torch.randint(0, 50_000, (200_000,), device=device)
    yield (
        "unique_key_value_pair",
        (ids,),
        lambda k: C.one_embedding_unique_key_value_pair(k, None, 1, "e"),
        lambda k: embedding.unique_key_value_pair_ref(k, torch.zeros_like(k, dtype=torch.uint8)),
        False,
        False,
    )
    photos, flags = (
        torch.randint(0, 256, (64, 256, 256, 3), dtype=torch.uint8, device=device),
        torch.randint(0, 2, (64,), dtype=torch.int8, device=device),
    )
    planes = torch.empty(64, 3, 224, 224, device=device)

    def normalized(function):
        def run(photos, flags, planes):
            function(photos, flags, 16, 16, [123.7, 116.8, 103.9], [0.017] * 3, planes)
            return ()

        return run

    yield (
        "crop_mirror_normalize",
        (photos, flags, planes),
        normalized(image_ops.crop_mirror_normalize),
        normalized(image_ops.crop_mirror_normalize_ref),
        False,
        False,
    )
    lists = [[rand(1024, 1024, low=0.1) for _ in range(4)] for _ in range(4)]

    def adam(*_):
        C.multi_tensor_adam_update(*lists, 1e-3, 0.0, 0.9, 0.99, 0.5, 0.5, True, 1.0, 0.01, 1e-8)

    def momentum(*_):
        C.multi_tensor_momentum_update(*lists[:3], 1.0, 0.01, 1e-3, 0.9, 0.0, False, False)

    def sgd(*_):
        C.multi_tensor_sgd_update(*lists[:2], 1.0, 0.01, 1e-3)

    for name, step, count in (
        ("multi_tensor_adam_update", adam, 4),
        ("multi_tensor_momentum_update", momentum, 3),
        ("multi_tensor_sgd_update", sgd, 2),
    ):
        yield name, tuple(t for part in lists[:count] for t in part), step, unfused(step), False, False


def torchs_own(name, inputs):
    """The call of torch that does what the operator `name` does (with no gradient scale), or None."""
    parts = [list(inputs[i : i + 4]) for i in range(0, len(inputs), 4)]
    how = {"weight_decay": 0.01, "lr": 1e-3, "maximize": False, "grad_scale": None, "found_inf": None}
    if name == "multi_tensor_adam_update":
        steps = [torch.ones((), device=inputs[0].device) for _ in parts[0]]
        return lambda: torch._fused_adamw_(
            *parts, [], steps, amsgrad=False, beta1=0.9, beta2=0.99, eps=1e-8, **how
        )
    if name in ("multi_tensor_momentum_update", "multi_tensor_sgd_update"):
        momentum = 0.9 if len(parts) == 3 else 0.0
        return lambda: torch._fused_sgd_(
            parts[0],
            parts[1],
            parts[2] if momentum else [],
            momentum=momentum,
            dampening=0.0,
            nesterov=False,
            is_first_step=False,
            **how,
        )
    return None


def unfused(step):
    def run(*inputs):
        use, optimizer_updates._ext.use = optimizer_updates._ext.use, lambda *a, **k: False
        try:
            step()
        finally:
            optimizer_updates._ext.use = use

    return run


def rounds(functions, seconds, sync):
    """The times of each function by round; a round takes them in turn, so that a busy machine hits
    all alike.
    """
    times, number = [[] for _ in functions], []
    for f in functions:
        f(), sync()
        began = time.perf_counter()
        f(), sync()
        number.append(max(1, int(0.01 / max(time.perf_counter() - began, 1e-6))))
    end = time.perf_counter() + seconds * len(functions)
    while len(times[0]) < 5 or time.perf_counter() < end:
        for i, f in enumerate(functions):
            began = time.perf_counter()
            for _ in range(number[i]):
                f()
            sync()
            times[i].append((time.perf_counter() - began) / number[i] * 1e3)
    return times


def ratio(above, below):
    return statistics.median(a / b for a, b in zip(above, below))


def backward_of(function, inputs):
    """The gradient alone: the graph is kept and walked again."""
    leaves = [x for x in inputs if x.is_floating_point()]
    for x in leaves:
        x.requires_grad_()
    out = function(*inputs)
    out = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if o.requires_grad]
    grads = [torch.randn_like(o) for o in out]
    return lambda: torch.autograd.grad(out, leaves, grads, retain_graph=True, allow_unused=True)


def gradients(name, inputs, functions):
    """backward_of each function; of the rotary embedding and of regions the first input alone is
    differentiated.
    """
    if "rotary" in name or "roi_align" in name:
        return [backward_of(lambda x, f=f: f(x, *inputs[1:]), (inputs[0].clone(),)) for f in functions]
    return [backward_of(f, tuple(x.clone() for x in inputs)) for f in functions]


def forward(name, inputs, ours, plain, bound, a, sync):
    """{column: times by round}."""
    in_place = name.startswith("multi_tensor")
    functions = {"ours": lambda: ours(*inputs), "plain": lambda: plain(*inputs)}
    if bound and not a.no_compile:
        compiled = torch.compile(plain, dynamic=False)
        functions["compiled"] = lambda: compiled(*inputs)
    if own := torchs_own(name, inputs):
        functions["torch"] = own
    with torch.no_grad():
        out = inputs if in_place else ours(*inputs)
        size = (
            sum(
                t.numel() * t.element_size()
                for t in (*inputs, *(out if isinstance(out, (tuple, list)) else [out]))
            )
            // 2
        )
        source = torch.ones(size // 4, device=a.device)
        target = torch.ones_like(source)
        # a fresh result if the operator returns one
        functions["copy"] = (lambda: target.copy_(source)) if in_place else source.clone
        return dict(zip(functions, rounds(list(functions.values()), a.seconds, sync)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-backward", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--json")
    a = parser.parse_args()
    began = time.perf_counter()
    device = (
        torch.cuda.get_device_name() if a.device == "cuda" else platform.processor() or platform.machine()
    )
    print(
        f"kernels: {_ext.status()}; {device}, {torch.get_num_threads()} threads, torch {torch.__version__}\n"
    )
    sync = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    keep_freed_memory()
    torch.manual_seed(0)
    print(
        "| operator | ours | plain | compiled | torch | copy | plain / ours | of copy | gradient:"
        " ours | plain | plain / ours |"
    )
    print("| --- " * 11 + "|")
    rows = {}
    for name, inputs, ours, plain, bound, differentiable in cases(a.device):
        if a.names and not any(n in name for n in a.names):
            continue
        times = forward(name, inputs, ours, plain, bound, a, sync)
        memory = bound or "torch" in times
        row = {k: statistics.median(v) for k, v in times.items() if memory or k != "copy"}
        row["plain / ours"] = ratio(times["plain"], times["ours"])
        if memory:
            row["of copy"] = ratio(times["copy"], times["ours"])
        if differentiable and not a.no_backward:
            one, two = rounds(gradients(name, inputs, (ours, plain)), a.seconds, sync)
            row |= {
                "gradient": statistics.median(one),
                "gradient plain": statistics.median(two),
                "gradient plain / ours": ratio(two, one),
            }
        rows[name] = row
        columns = (
            "ours",
            "plain",
            "compiled",
            "torch",
            "copy",
            "plain / ours",
            "of copy",
            "gradient",
            "gradient plain",
            "gradient plain / ours",
        )
        shown = [
            "-"
            if k not in row
            else f"{row[k]:.2f}"
            if "/" in k or "of" in k
            else f"{row[k]:.3g}"
            if row[k] < 100
            else f"{row[k]:.0f}"
            for k in columns
        ]
        print(f"| {name} | " + " | ".join(shown) + " |", flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
