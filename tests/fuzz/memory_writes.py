"""Statements that write memory in place: a target (a tensor through up to two views), a write, and a source,
which often reads the memory that is written.

Entries are templates, as in operators.py. {v} is the target, {d} and {e} are two of its dimensions, {i} is an
index of its first dimension, {I} and {J} are constant indices of its first and last dimension, {mask} is a
condition of its shape, {order} holds each index of dimension {d} once, {r} and {s} are numbers. {source} is a
tensor that broadcasts to the target, {rows} to target[I], and {row} to one row.
"""

from operators import Unfit, table

MOST_INDICES = 3

VIEWS = (
    "{v}[1:]",
    "{v}[:-1]",
    "{v}[::2]",
    "{v}[..., 1:]",
    "{v}[..., ::2]",
    "{v}[{i}]",
    "{v}[..., -1]",
    "{v}[({v} > 0).sum() % {v}.shape[0]]",
    "{v}[..., ({v} > {r}).sum() % {v}.shape[-1]]",
    "{v}[None]",
    "{v}.select({d}, 0)",
    "{v}.narrow({d}, 0, 1)",
    "{v}.narrow({d}, -1, 1)",
    "{v}.transpose({d}, {e})",
    "{v}.mT",
    "{v}.diagonal()",
    "{v}.diagonal(1)",
    "{v}.view(-1)",
    "{v}.flatten()[1:]",
    "{v}.unsqueeze({d})",
    "{v}.squeeze()",
    "{v}.movedim(0, -1)",
    "{v}.unfold(0, 2, 2)",
    "{v}.chunk(2, {d})[0]",
    "{v}.unbind({d})[-1]",
    "{v}.as_strided({v}.shape[:1], {v}.stride()[:1])",
    "{v}.as_strided(({v}.numel() // 2,), (2,))",
    "{v}.detach()",
)

SELF_READS = (
    "{v}.flip({d})",
    "{v}.roll(1, {d})",
    "{v}.clone()",
    "{v}.sum({d}, keepdim=True)",
    "{v}.mean()",
    "{v}.amax({d}, keepdim=True)",
    "{v}.cumsum({d})",
    "{v}.softmax({d})",
    "{v}.detach() * {s}",
    "{v}[..., {v}.shape[-1] // 2].unsqueeze(-1).clone()",
    "{v}[[{i}]] * {s}",
    "{v}.sort({d}).values",
    "torch.where({mask}, {v}, {r})",
)

# {t}: another tensor; {shape} and {n}: the shape that is needed and its elements
OTHER_SOURCES = (
    "{t}.sum()",
    "{t}.mean()",
    "{t}.flatten()[:{n}].view({shape})",
    "{t}.reshape(-1)[-{n}:].view({shape}).flip(0)",
    "{t}.flatten()[:1].expand({shape})",
    "torch.full({shape}, {r})",
    "torch.tensor({r})",
    "torch.ones(1).expand({shape}) * {s}",
    "torch.arange({n}).view({shape}) * {s}",
)

WRITES = (
    "{v}.copy_({source})",
    "{v}.copy_({source})",
    "{v}.add_({source})",
    "{v}.add_({source}, alpha={r})",
    "{v}.sub_({source})",
    "{v}.mul_({source})",
    "{v}.mul_({s})",
    "{v}.div_({source}.abs() + 1)",
    "{v}.lerp_({source}, {s})",
    "{v}.addcmul_({source}, {source}, value={r})",
    "{v}.clamp_(-{s}, {s})",
    "{v}.clamp_(max={source})",
    "{v}.fill_({r})",
    "{v}.zero_()",
    "{v}.neg_()",
    "{v}.tanh_()",
    "{v}.cumsum_({d})",
    "{v}.tril_()",
    "{v}.fill_diagonal_({r})",
    "{v}.masked_fill_({mask}, {r})",
    "{v}.masked_scatter_({mask}, {source})",
    "{v}[{mask}] = {r}",
    "{v}[{mask}] *= {s}",
    "{v}[{i}] = {row}",
    "{v}[{i}] += {row}",
    "{v}[({v} > {r}).sum() % {v}.shape[0]] += {row}",
    "{v}[{I}] = {r}",
    "{v}[{I}] = 0.0",
    "{v}[{I}] = {rows}",
    "{v}[{I}] *= {s}",
    "{v}[{I}] += {rows}",
    "{v}[{I}] = {v}[{I}.flip(0)]",
    "{v}[..., {J}] = {r}",
    "{v}[..., {J}] = {v}[..., {J}].flip(0)",
    "{v}[{I}[:, None], {J}] = {r}",
    "{v}[{order}] = {source}",
    "{v}[::2] = {row}",
    "{v}[1:] = {v}[:-1].clone()",
    "{v}[..., :-1] = {v}[..., 1:].clone()",
    "{v}[0], {v}[-1] = {v}[-1].clone(), {v}[0].clone()",
    "{v}.index_fill_(0, {I}, {r})",
    "{v}.index_fill_(-1, {J}, {r})",
    "{v}.index_copy_(0, {I}, {rows}.expand({v}[{I}].shape))",
    "{v}.index_add_(0, {I}, {rows}.expand({v}[{I}].shape), alpha={r})",
    "{v}.index_add_(0, {I} * 0, {rows}.expand({v}[{I}].shape))",
    "{v}.index_put_(({I},), {rows}, accumulate=True)",
    "{v}.index_put_(({I} * 0,), {rows}, accumulate=True)",
    "{v}.scatter_({d}, {order}, {source}.expand({v}.shape))",
    "{v}.scatter_({d}, {v}.argmax({d}, keepdim=True), {r})",
    "{v}.scatter_add_({d}, {v}.argsort({d}) // 2, {source}.expand({v}.shape))",
    "{v}.scatter_reduce_({d}, {v}.argsort({d}) // 2, {source}.expand({v}.shape), 'amax')",
    "{v}.scatter_reduce_({d}, {v}.argsort({d}) // 2, {source}.expand({v}.shape), 'sum', include_self=False)",
    "{v}.put_({I}, torch.tensor([{r}]).expand({I}.shape))",
    "{v}.put_({I}, {v}.flatten()[{I}.flip(0)] * {s}, accumulate=True)",
    "torch._foreach_mul_([{v}[0], {v}[-1]], {s})",
    "torch._foreach_add_([{v}], [{source}.expand({v}.shape)])",
)

# {a} is a tensor as in operators.py; these make memory that is written later, or read it
EXPRESSIONS = table(
    "{a}.clone()",
    "{a} * {s}",
    "{a} + {c}",
    "{a} - {c} * {s}",
    "{a} * {b}",
    "{a}.relu()",
    "{a}.detach()",
    "{a}.detach().clone()",
    "{a}.softmax({d})",
    "{a}.transpose({d}, {e}).clone().transpose({d}, {e})",
    "{a}.transpose({d}, {e})",
    "{a}[1:]",
    "{a}[..., ::2]",
    "{a}[:1] * torch.ones({a}.shape)",
    "{a}.narrow({d}, 0, 1).expand({a}.shape)",
    "{a}.narrow({d}, 0, 1).expand({a}.shape).clone()",
    "{a}.sum({d}, keepdim=True).expand({a}.shape)",
    "torch.zeros({a}.shape)",
    "torch.ones(1).expand({a}.shape).clone()",
    "torch.full({a}.shape, {r}) + {a} * 0.5",
    "{a}.new_zeros({k} + {a}.shape[0], *{a}.shape[1:])",
    "torch.cat([{a}, {c}], {d})",
    "torch.cat([{a}, {a}])[1 : {a}.shape[0] + 1] * {s}",
    "torch.stack({a}.unbind({d}), {d})",
    "torch.stack([{a}, {c}], {d}).sum({d})",
    "F.pad({a}, ({k}, 0))",
    "{a} @ {c}.mT if {a}.dim() > 1 else {a}.outer({c})",
    "F.cross_entropy({a}, {c}.argmax(-1), reduction='none') if {a}.dim() == 2 else {a}.square()",
    "F.mse_loss({a}, {c}, reduction='none')",
    "F.dropout({a}, 0.3, False)",
    "{a}.sum({d})",
    "{a}.mean({d}, keepdim=True)",
    "{a}.logsumexp({d})",
    "{a}.cumsum({d})",
    "{a}.flip({d})",
    "{a}.roll({k}, {d})",
    "{a}.amax({d})",
    "{a}.sort({d}).values",
    "{a}.diagonal()",
    "{a}.flatten()",
    "{a}[{a}.argsort(0)[:, 0]] if {a}.dim() == 2 else {a}",
    "{a}.index_select(0, n0.flatten() % {a}.shape[0])",
    "{a}.gather({d}, {a}.argsort({d}))",
    "torch.where({cond}, {a}, {r})",
    "torch.where({cond}, {a}, {b})",
    # writes that return their result
    "{a}.masked_fill({cond}, {r})",
    "{a}.masked_scatter({cond}, {c})",
    "{a}.index_fill(0, n0.flatten() % {a}.shape[0], {r})",
    "{a}.index_put((n0.flatten() % {a}.shape[0],), {c}[0], accumulate={flag})",
    "{a}.index_add({d}, torch.tensor([0, 0]), {c}.narrow({d}, 0, 1).repeat_interleave(2, {d}), alpha={r})",
    "{a}.index_copy({d}, torch.tensor([0]), {c}.narrow({d}, -1, 1))",
    "{a}.scatter({d}, {a}.argmax({d}, keepdim=True), {r})",
    "{a}.scatter_add({d}, {c}.argsort({d}), {c})",
    "{a}.scatter_reduce({d}, {c}.argsort({d}) // 2, {c}, 'amax')",
    "{a}.put(torch.tensor([0]), torch.tensor([{r}]), accumulate={flag})",
    "torch.slice_scatter({a}, {c}.narrow({d}, 0, 1), {d}, 0, 1)",
    "torch.select_scatter({a}, {c}.select({d}, 0), {d}, -1)",
    "torch.diagonal_scatter({a}, {c}.diagonal()) if {a}.dim() == 2 else {a}",
    "torch.as_strided_scatter({a}, {c}.flatten()[:1], (1,), (1,))",
    # gradients inside the step
    "torch.autograd.grad(({a} * {s}).square().sum(), {a}, create_graph=True)[0]",
    "torch.autograd.grad({a}.index_fill(0, n0.flatten() % {a}.shape[0], 0.0).sum(), {a})[0] * {a}",
    (
        "torch.utils.checkpoint.checkpoint(lambda t: t.sin().index_fill(0, torch.tensor([0]), {r}), {a},"
        " use_reentrant=False)"
    ),
)

RANDOM_EXPRESSIONS = table(
    "F.dropout({a}, 0.3)",
    "torch.rand_like({a}) * {a}",
    "torch.randn({a}.shape) + {a}",
    "torch.bernoulli({a}.sigmoid())",
    "torch.randint(0, 5, {a}.shape) * {a}",
    "{a}[torch.randperm({a}.shape[0])]",
    "{a} + torch.empty({a}.shape).uniform_(-1, 1)",
    "{a} + torch.empty({a}.shape).normal_()",
    "torch.multinomial({a}.flatten()[:5].softmax(0), 1) + {a}",
)

# of a tensor with a gradient
HOOKS = (
    "{v}.register_hook(lambda g: g.index_fill(0, {I}, {r}))",
    "{v}.register_hook(lambda g: g.clone().masked_fill_(g > {r}, 0.0))",
    "{v}.register_hook(lambda g: g.clone().index_put_(({I},), torch.tensor({r})))",
    "{v}.retain_grad()",
)

# {v} is a buffer, {t} a tensor that broadcasts to it, {q} a counter
BUFFER_UPDATES = (
    "{v}.mul_({s}).add_({t}.detach(), alpha=0.1)",
    "{v}.lerp_({t}.detach(), 0.1)",
    "{v}.copy_({t}.detach())",
    "{v}[{I}] = {t}.detach().expand({v}.shape)[{I}]",
    "{v}.copy_(torch.cat([{t}.detach().expand({v}.shape)[:1], {v}[:-1]]))",
    "{v}.index_copy_(0, ({q} + {I}) % {v}.shape[0], {t}.detach().expand({v}.shape)[{I}])",
    "{v}[({q} + {I}) % {v}.shape[0]] = {t}.detach().expand({v}.shape)[{I}]",
    "{q}.add_({k})",
    "{q}.copy_(({q} + {k}) % {v}.shape[0])",
    "{v}.div_({v}.abs().sum() + 1)",
    "{v}.copy_(F.normalize({v}, dim={d}))",
)

# after backward, without gradients: {v} and {w} have one shape
EXCHANGES = (
    "swap = {v}.clone(); {v}.copy_({w}); {w}.copy_(swap)",
    "{v}.lerp_({w}, {s})",
    "{v}.mul_({s}).add_({w}, alpha=0.1)",
    "{v}.copy_({w}); {w}.zero_()",
    "{v}.sub_({w}.flip(0)); {w}.add_({v}.roll(1, 0))",
    "torch._foreach_lerp_([{v}], [{w}], {s})",
)


def fill(g, template, v, detached=False):
    """The template for the target `v`; Unfit if the target has no such dimension or index."""
    shape = tuple(g.evaluate(v).shape)
    if 0 in shape:
        raise Unfit
    makers = {
        "r": g.number,
        "s": lambda: g.number(0.1, 1.5),
        "k": lambda: g.integer(1, 3),
        "d": lambda: dimension(g, shape),
        "e": lambda: dimension(g, shape),
        "i": lambda: g.integer(-size(shape, 0), size(shape, 0) - 1),
        "I": lambda: indices(g, size(shape, 0)),
        "J": lambda: indices(g, size(shape, -1)),
        "mask": lambda: mask(g, v, shape),
    }
    values = {key: make() for key, make in makers.items() if "{" + key + "}" in template}
    if "{order}" in template:
        values["d"] = 0 if "[{order}]" in template else values["d"]
        values["order"] = (
            f"torch.randperm({size(shape, 0)}, generator=torch.Generator().manual_seed({g.integer(0, 99)}))"
            if "[{order}]" in template
            else f"{v}.argsort({values['d']})"
        )
    text = template.replace("{v}", v)
    for key, needed in (("source", v), ("rows", f"{v}[{values.get('I')}]"), ("row", f"{v}[0]")):
        while "{" + key + "}" in text:
            text = text.replace("{" + key + "}", source(g, needed, detached), 1)
    return replace_keys(text, values)


def replace_keys(template, values):
    for key, value in values.items():
        template = template.replace("{" + key + "}", str(value))
    return template


def size(shape, dimension):
    if not shape:
        raise Unfit
    return shape[dimension]


def dimension(g, shape):
    size(shape, 0)
    return g.integer(-len(shape), len(shape) - 1)


def indices(g, length):
    """A constant of distinct indices, in any order."""
    count = g.integer(1, min(length, MOST_INDICES))
    return f"torch.tensor({g.rng.sample(range(length), count)})"


def mask(g, v, shape):
    count = g.evaluate(v).numel()
    return g.one_of(
        f"({v} > {g.number(-0.5, 0.5)})",
        f"({v} <= {v}.mean())",
        f"(torch.arange({count}).view({shape}) % {g.integer(2, 3)} == 0)",
    )


def source(g, v, detached=False):
    """An expression that broadcasts to `v`: a tensor, a constant, or a read of the memory behind `v`."""
    shape = tuple(g.evaluate(v).shape)
    choice = g.rng.random()
    if choice < 0.4:
        text = "(" + fill(g, g.one_of(*SELF_READS), v) + ")"
    elif choice < 0.7:
        text = g.tensor(lambda t: broadcasts_to(t.shape, shape))
    else:
        count = g.evaluate(v).numel()
        t = g.tensor(lambda t: t.numel() >= count)
        template = g.one_of(*OTHER_SOURCES)
        values = {"t": t, "n": count, "shape": shape, "r": g.number(), "s": g.number(0.1, 1.5)}
        text = "(" + replace_keys(template, values) + ")"
    return f"{text}.detach()" if detached else text


def broadcasts_to(shape, target):
    return len(shape) <= len(target) and all(x in (1, y) for x, y in zip(reversed(shape), reversed(target)))


def view_of(g, name):
    """The tensor through up to two views."""
    text = name
    for _ in range(g.one_of(0, 0, 1, 1, 2)):
        template = g.one_of(*VIEWS)
        if "as_strided" in template and not owns_dense_memory(g.evaluate(text)):
            continue
        text = fill(g, template, text)
    return text


def owns_dense_memory(t):
    """Whether the tensor is all of its memory in order, so that as_strided stays inside."""
    return (
        t.is_contiguous()
        and t.storage_offset() == 0
        and t.untyped_storage().nbytes() == t.numel() * t.element_size()
    )


def is_target(t):
    return t.is_floating_point() and t.numel() > 1


def draw_write(g, latest=None):
    """A write into a computed tensor or a buffer, often the latest; what a buffer takes is detached, as it
    outlives the step.
    """
    name = latest if latest and g.rng.random() < 0.5 else g.named(r"[vb]\d+", is_target)
    if g.rng.random() < 0.06:
        return fill(g, g.one_of(*HOOKS), name)
    return fill(g, g.one_of(*WRITES), view_of(g, name), detached=name.startswith("b"))


def draw_buffer_update(g):
    name = g.named(r"b\d+", is_target)
    shape = g.of(name).shape
    template = g.one_of(*BUFFER_UPDATES)
    values = {}
    if "{t}" in template:
        values["t"] = g.tensor(lambda t: broadcasts_to(t.shape, shape))
    if "{q}" in template:
        values["q"] = g.named(r"b\d+", lambda t: not t.is_floating_point() and t.dim() == 0)
    return fill(g, replace_keys(template, values), name)


def draw_late_write(g, latest=None):
    """A write into a parameter, its gradient or a buffer, after backward."""
    name = latest if latest and g.rng.random() < 0.5 else g.named(r"[pb]\d+(\.grad)?", is_target)
    if g.rng.random() < 0.35:
        shape = g.of(name).shape
        other = g.named(r"[pb]\d+(\.grad)?", lambda t: t.shape == shape and t is not g.of(name))
        return fill(g, g.one_of(*EXCHANGES).replace("{w}", other), name)
    return fill(g, g.one_of(*WRITES), view_of(g, name))
