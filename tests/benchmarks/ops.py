"""Each custom operator against its torch composition, torch.compile of it, and a copy of the same bytes.

    python tests/benchmarks/ops.py [name ...] [--device cuda] [--backward] [--no-compile] [--seconds 0.3] [--json FILE]

Columns in microseconds, best of several rounds taken in turn: ours, plain (the torch composition), compiled (torch.compile of it),
copy (reading the inputs and writing the outputs once). "x" is plain / ours, "bw" copy / ours: the share of the copy's bandwidth.
"""
import argparse
import itertools
import json
import platform
import time

import torch

import oneflow
from oneflow._ops.custom import activation, boxes, detection, embedding, losses, quantization, recommender, rotary, softmax
from oneflow._ops.custom import _ext, optimizer_updates

C = oneflow._C
f32 = torch.float32


def cases(device):
    """(name, inputs, ours, plain, memory-bound, differentiable)."""
    def rand(*shape, low=-1.0, high=1.0):
        return torch.empty(shape, device=device).uniform_(low, high)

    big, wide = rand(4096, 4096), rand(4096)
    scores, mask = rand(8, 12, 512, 512), torch.rand(8, 1, 512, 512, device=device) > 0.3
    yield "fused_bias_add_gelu", (big, wide), lambda x, b: C.fused_bias_add_gelu(x, b, axis=1), lambda x, b: activation.fused_bias_add_gelu_ref(x, b, 1), True, True
    yield "fused_bias_add_dropout", (big, wide), lambda x, b: C.fused_bias_add_dropout(x, b, p=0.1, axis=1), lambda x, b: activation.fused_bias_add_dropout_ref(x, b, 0.1, 1), True, True
    yield "fused_scale_mask_softmax", (scores, mask), lambda x, m: C.fused_scale_mask_softmax(x, m, fill_value=-1e4, scale=0.1), lambda x, m: softmax.fused_scale_mask_softmax_ref(x, m, -1e4, 0.1), True, True

    def plain_softmax_dropout(x, m):
        y = softmax.fused_scale_mask_softmax_ref(x, m, -1e4, 0.1)
        return torch.nn.functional.dropout(y, 0.1), y

    yield "fused_scale_mask_softmax_dropout", (scores, mask), lambda x, m: C.fused_scale_mask_softmax_dropout(x, m, fill_value=-1e4, scale=0.1, p=0.1), plain_softmax_dropout, True, True
    yield "fused_scale_tril", (scores,), lambda x: C.fused_scale_tril(x, 0, 0.0, 0.5), lambda x: softmax.fused_scale_tril_ref(x, 0, 0.0, 0.5), True, True

    def plain_tril(x):
        y = torch.softmax(softmax.fused_scale_tril_ref(x, 0, -1e4, 0.1), -1)
        return torch.nn.functional.dropout(y, 0.1), y

    yield "fused_scale_tril_softmax_mask_scale", (scores,), lambda x: C.fused_scale_tril_softmax_mask_scale(x, p=0.1, diagonal=0, tril_scale_value=0.1, tril_fill_value=-1e4), plain_tril, True, True
    heads, (cos, sin) = rand(8, 12, 512, 64), rotary.angles(64, torch.arange(512, device=device), 1e4, "plane", f32)
    for mode in ("plane", "interval"):
        yield (f"fused_apply_rotary_emb {mode}", (heads, cos, sin), lambda x, c, s, m=mode: C.fused_apply_rotary_emb(x, cos=c, sin=s, mode=m),
               lambda x, c, s, m=mode: rotary.rotate_ref(x.transpose(1, 2), c[None], s[None], m).transpose(1, 2), True, True)
    yield "quick_gelu", (big,), activation.quick_gelu, activation.quick_gelu_ref, True, True
    yield "square_relu", (big,), activation.square_relu, activation.square_relu_ref, True, True
    yield "fused_fast_gelu_mul", (big, rand(4096, 4096)), C.fused_fast_gelu_mul, activation.fused_fast_gelu_mul_ref, True, True
    features = rand(2048, 27, 128)
    yield "fused_dot_feature_interaction", (features,), lambda x: C.fused_dot_feature_interaction([x]), lambda x: recommender.fused_dot_feature_interaction_ref(x, None, False, 0), False, True
    eight = tuple(rand(100_000, low=0.1) for _ in range(8))
    yield "fused_get_boundding_boxes_coord", eight, C.fused_get_boundding_boxes_coord, boxes.coord_ref, True, True
    yield "fused_get_intersection_area", eight, C.fused_get_intersection_area, boxes.intersection_ref, True, True
    yield "fused_get_iou", eight[:5], lambda *x: C.fused_get_iou(*x, 1e-7), lambda *x: boxes.iou_ref(*x, 1e-7), True, True
    yield "fused_get_convex_diagonal_squared", eight, lambda *x: C.fused_get_convex_diagonal_squared(*x, 1e-7), lambda *x: boxes.convex_ref(*x, 1e-7), True, True
    yield "fused_get_center_dist", eight, C.fused_get_center_dist, boxes.center_dist_ref, True, True
    yield "fused_get_ciou_diagonal_angle", eight[:4], lambda *x: C.fused_get_ciou_diagonal_angle(*x, 1e-7), lambda *x: boxes.angle_ref(*x, 1e-7), True, True
    yield "fused_get_ciou_result", eight[:4], lambda *x: C.fused_get_ciou_result(*x, 1e-7)[0], lambda *x: boxes.ciou_ref(*x, 1e-7)[0], True, True
    one, zero = torch.tensor([0.01], device=device), torch.tensor([0.0], device=device)

    def plain_fake(x, s, z):
        q, s, z = quantization._rounded("fake_quantization", x, s, z, "google", 8, "symmetric")
        return (q - z) * s

    yield "fake_quantization", (big, one, zero), lambda x, s, z: C.fake_quantization(x, s, z, "google", 8, "symmetric"), plain_fake, True, False
    corners = rand(2000, 2, low=0, high=100)
    found = torch.cat((corners, corners + rand(2000, 2, low=5, high=40)), 1)
    yield "nms", (found,), lambda b: C.nms(b, 0.5), lambda b: detection.nms_mask_ref(b, 0.5, -1), False, False
    image = rand(2, 64, 50, 50)
    regions = torch.cat((torch.randint(0, 2, (64, 1), device=device).float(), rand(64, 2, low=0, high=100), rand(64, 2, low=110, high=390)), 1)
    yield "roi_align", (image, regions), lambda x, r: C.roi_align(x, r, 0.125, 7, 7, 2, True), lambda x, r: detection.roi_align_ref(x, r, 0.125, 7, 7, 2, True), False, True
    offset, modulation = rand(2, 18, 50, 50), rand(2, 9, 50, 50)
    how = [3, 3], [1, 1], [1, 1], [1, 1], 1
    yield "deform_conv2d columns", (image, offset, modulation), lambda x, o, m: torch.ops.oneflow.deform_columns(x, o, m, *how), lambda x, o, m: detection.deform_columns_ref(x, o, m, *how), False, True
    log_probs, lengths = rand(200, 32, 80), torch.full((32,), 180, device=device)
    yield "ctc_greedy_decoder", (log_probs, lengths), C.ctc_greedy_decoder, lambda x, n: losses.ctc_greedy_decoder_ref(x, n, True), False, False
    ids = torch.randint(0, 50_000, (200_000,), device=device)
    yield "unique_key_value_pair", (ids,), lambda k: C.one_embedding_unique_key_value_pair(k, None, 1, "e"), lambda k: embedding.unique_key_value_pair_ref(k, torch.zeros_like(k, dtype=torch.uint8)), False, False
    lists = [[rand(1024, 1024, low=0.1) for _ in range(4)] for _ in range(4)]

    def adam(*_):
        C.multi_tensor_adam_update(*lists, 1e-3, 0.0, 0.9, 0.99, 0.5, 0.5, True, 1.0, 0.01, 1e-8)

    def momentum(*_):
        C.multi_tensor_momentum_update(*lists[:3], 1.0, 0.01, 1e-3, 0.9, 0.0, False, False)

    def sgd(*_):
        C.multi_tensor_sgd_update(*lists[:2], 1.0, 0.01, 1e-3)

    for name, step, count in (("multi_tensor_adam_update", adam, 4), ("multi_tensor_momentum_update", momentum, 3), ("multi_tensor_sgd_update", sgd, 2)):
        yield name, tuple(t for part in lists[:count] for t in part), step, unfused(step), False, False


def unfused(step):
    def run(*inputs):
        use, optimizer_updates._ext.use = optimizer_updates._ext.use, lambda *a, **k: False
        try:
            step()
        finally:
            optimizer_updates._ext.use = use
    return run


def rounds(functions, seconds, sync):
    """Best time of each function, measured in turn so that a busy machine hits all alike."""
    best, number = [float("inf")] * len(functions), []
    for f in functions:
        f(), sync()
        began = time.perf_counter()
        f(), sync()
        number.append(max(1, int(0.02 / max(time.perf_counter() - began, 1e-6))))
    end = time.perf_counter() + seconds * len(functions)
    for turn in itertools.count():
        for i, f in enumerate(functions):
            began = time.perf_counter()
            for _ in range(number[i]):
                f()
            sync()
            best[i] = min(best[i], (time.perf_counter() - began) / number[i])
        if turn >= 4 and time.perf_counter() > end:
            return best


def backward_of(function, inputs):
    """The gradient alone: the graph is kept and walked again."""
    leaves = [x for x in inputs if x.is_floating_point()]
    for x in leaves:
        x.requires_grad_()
    out = function(*inputs)
    out = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if o.requires_grad]
    grads, wanted = [torch.randn_like(o) for o in out], [x for x in leaves if x.requires_grad]
    return lambda: torch.autograd.grad(out, wanted, grads, retain_graph=True, allow_unused=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--json")
    a = parser.parse_args()
    print(f"kernels: {_ext.status()}; {torch.cuda.get_device_name() if a.device == 'cuda' else platform.processor() or platform.machine()}, "
          f"{torch.get_num_threads()} threads, torch {torch.__version__}, {'backward' if a.backward else 'forward'}")
    sync = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    torch.manual_seed(0)
    rows = {}
    print(f"{'':38s}{'ours':>10s}{'plain':>10s}{'compiled':>10s}{'copy':>10s}{'x':>7s}{'bw':>7s}")
    for name, inputs, ours, plain, bound, differentiable in cases(a.device):
        if a.names and not any(n in name for n in a.names) or a.backward and not differentiable:
            continue
        inputs = tuple(x.clone() for x in inputs) if not name.startswith("multi_tensor") else inputs
        compiled = None if a.no_compile or not bound or name.startswith("multi_tensor") else torch.compile(plain)
        if a.backward:
            if "rotary" in name or "roi_align" in name:
                first, rest = inputs[0], inputs[1:]
                functions = [backward_of(lambda x, f=f: f(x, *rest), (first.clone(),)) for f in (ours, plain, *([compiled] if compiled else []))]
            else:
                functions = [backward_of(f, tuple(x.clone() for x in inputs)) for f in (ours, plain, *([compiled] if compiled else []))]
        else:
            functions = [lambda f=f: f(*inputs) for f in (ours, plain, *([compiled] if compiled else []))]
        out = [] if name.startswith("multi_tensor") else ours(*inputs)
        out = [o for o in (out if isinstance(out, (tuple, list)) else [out])]
        size = sum(t.numel() * t.element_size() for t in (*inputs, *out)) // 2
        source = torch.zeros(size // 4, device=a.device)
        functions.append(source.clone)  # a fresh result, as the operators give
        with torch.set_grad_enabled(a.backward):
            best = [t * 1e6 for t in rounds(functions, a.seconds, sync)]
        one, two, copy = best[0], best[1], best[-1]
        three = best[2] if compiled else float("nan")
        rows[name] = {"ours": one, "plain": two, "compiled": three, "copy": copy}
        print(f"{name:38s}{one:10.1f}{two:10.1f}{three:10.1f}{copy:10.1f}{two / one:7.2f}{copy / one if bound else float('nan'):7.2f}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
