"""The building blocks of random programs. Each entry samples its tensors and arguments and returns the text
of one expression, write or layer.
"""


class Unfit(Exception):
    """An operator finds no tensors that fit it."""


def table(*templates):
    """Entries from texts: {a} a floating tensor, {b} one that broadcasts with it, {c} one of its shape,
    {cond} a condition of its shape, {d} and {e} two of its dimensions, {r} {s} numbers, {k} a small whole
    number, {flag} a bool.
    """

    def entry(template):
        def text(g):
            a = g.tensor()
            fill = {
                "a": a,
                "r": g.number(),
                "s": g.number(0.1, 1.5),
                "k": g.integer(1, 3),
                "flag": g.one_of(True, False),
            }
            for key, value in (
                ("b", g.matching),
                ("c", g.like),
                ("cond", g.condition),
                ("d", g.dim),
                ("e", g.dim),
            ):
                if "{" + key + "}" in template:
                    fill[key] = value(a)
            return template.format(**fill)

        return text

    return [entry(t) for t in templates]


def per_rank(low, high, *templates):
    """As `table`, of a tensor {a} with low..high dimensions, each of at least two elements where they are the
    last two.
    """

    def entry(template):
        def text(g):
            a = g.tensor(lambda t: low <= t.dim() <= high and min(t.shape[-2:]) > 1)
            shape = g.of(a).shape
            return template.format(
                a=a,
                c=shape[1] if len(shape) > 1 else 1,
                n=shape[-1],
                k=g.integer(1, 3),
                r=g.number(),
                flag=g.one_of(True, False),
            )

        return text

    return [entry(t) for t in templates]


EXPRESSIONS = (
    table(
        # one tensor, element by element
        *[
            f"torch.{name}({{a}})"
            for name in (
                "sin cos tanh sigmoid relu erf erfc atan asinh abs neg sign floor ceil round trunc frac"
                " square sinc expm1 positive deg2rad nan_to_num"
            ).split()
        ],
        *[
            f"F.{name}({{a}})"
            for name in (
                "gelu silu softplus elu selu celu hardswish hardsigmoid hardtanh relu6 leaky_relu mish"
                " logsigmoid softsign tanhshrink hardshrink softshrink"
            ).split()
        ],
        *[f"torch.special.{name}({{a}})" for name in "i0e i1e ndtr log_ndtr expit".split()],
        "torch.exp(-{a}.abs())",
        "torch.sqrt({a}.abs() + {s})",
        "torch.log1p({a}.abs())",
        "torch.rsqrt({a}.square() + {s})",
        "torch.log({a}.abs() + {s})",
        "torch.exp2({a}.clamp(-3, 3))",
        "torch.log2({a}.abs() + 0.5)",
        "torch.log10({a}.square() + {s})",
        "torch.reciprocal({a}.square() + {s})",
        "torch.erfinv({a}.tanh() * 0.9)",
        "torch.asin({a}.tanh() * 0.9)",
        "torch.acos({a}.sin() * 0.9)",
        "torch.acosh({a}.abs() + 1.5)",
        "torch.atanh({a}.tanh() * 0.9)",
        "torch.sinh({a}.clamp(-2, 2))",
        "torch.tan({a}.clamp(-1, 1))",
        "torch.lgamma({a}.abs() + 1)",
        "torch.digamma({a}.abs() + 1)",
        "torch.special.entr({a}.sigmoid())",
        "torch.logit({a}.sigmoid(), 1e-3)",
        "torch.clamp({a}, -{s}, {s})",
        "torch.clamp({a}, min={c})",
        "{a}.pow(2)",
        "{a}.pow(3)",
        "({a}.abs() + 0.1) ** {r}",
        "{s} ** {a}",
        "F.threshold({a}, {s}, {r})",
        "F.gelu({a}, approximate='tanh')",
        "F.leaky_relu({a}, {s})",
        "{a} * {r}",
        "{a} + {r}",
        "{r} - {a}",
        "{r} / ({a}.abs() + 1)",
        "{a} % {s}",
        "{a} // {s}",
        "torch.remainder({a}, -{s})",
        "torch.fmod({a}, {s})",
        "{a}.div({s}, rounding_mode='floor')",
        "{a}.div({s}, rounding_mode='trunc')",
        "-{a}",
        "{a}.detach()",
        "{a}.float()",
        "{a}.to(torch.float32).to({a}.dtype)",
        "{a}.double()",
        "{a}.bfloat16().to({a}.dtype)",
        "{a}.to(torch.int32).to({a}.dtype)",
        "{a}.long() % 3 * {a}",
        "{a}.bool() * {a}",
        "{a}.clone()",
        "{a}.contiguous()",
        "{a}.clone(memory_format=torch.preserve_format)",
        "torch.view_as_real(torch.complex({a}, {c})).sum(-1)",
        "torch.polar({a}.abs(), {c}).real",
        # several, element by element
        "{a} + {b}",
        "{a} - {b}",
        "{a} * {b}",
        "{a} / ({b}.abs() + {s})",
        "torch.maximum({a}, {b})",
        "torch.minimum({a}, {b})",
        "torch.fmax({a}, {b})",
        "torch.fmin({a}, {b})",
        "torch.atan2({a}, {b}.abs() + {s})",
        "torch.hypot({a}, {b} + 3)",
        "torch.where({cond}, {a}, {b})",
        "torch.where({cond}, {a}, {r})",
        "torch.where({cond}, 0.0, {a})",
        "torch.lerp({a}, {c}, {s})",
        "torch.addcmul({a}, {b}, {c}, value={r})",
        "torch.addcdiv({a}, {c}, {b}.abs() + {s}, value={r})",
        "torch.logaddexp({a}, {b})",
        "torch.copysign({a}, {b})",
        "torch.xlogy({a}, {b}.abs() + {s})",
        "torch.float_power({a}.abs() + 0.1, 1.5)",
        "torch.nextafter({a}, {c})",
        "torch.add({a}, {b}, alpha={r})",
        "torch.sub({a}, {b}, alpha=2)",
        "torch.rsub({a}, {b}, alpha={r})",
        "torch.heaviside({a}, {c}.detach()) + {a}",
        "{a}.masked_fill({cond}, {r})",
        "({cond} & ({a} > 0)) * {a}",
        "({cond} ^ ({c} < 0)).to({a}.dtype)",
        "(~{cond}).double() + {b}",
        "torch.stack([{a}, {c}], {d}).amax({d})",
        "sum([{a}, {b}, {c}])",
        "torch.isclose({a}, {c}, atol=0.5) * {a}",
        "torch.ldexp({a}, torch.tensor({k}))",
        # reductions
        "{a}.sum()",
        "{a}.mean()",
        "{a}.sum({d})",
        "{a}.sum({d}, keepdim=True)",
        "{a}.mean({d}, keepdim={flag})",
        "{a}.amax({d}, keepdim={flag})",
        "{a}.amin({d})",
        "{a}.max({d}).values",
        "{a}.min({d}, keepdim=True)[0]",
        "{a}.max()",
        "{a}.var({d}, correction=0)",
        "({a}.var({d}, correction=0, keepdim=True) + {s}).sqrt()",
        "{a}.tanh().prod({d})",
        "{a}.logsumexp({d})",
        "({a}.square() + {s}).norm(dim={d})",
        "torch.linalg.vector_norm({a} + 3, 3, {d}, True)",
        "{a}.median({d}).values",
        "{a}.argmax({d})",
        "{a}.argmin({d}) * 1.5",
        "{a}.std() if {a}.numel() > 1 else {a}",
        "torch.var_mean({a}, {d}, correction=0)[0]",
        "torch.aminmax({a}, dim={d})[1]",
        "{a}.nansum({d})",
        "({cond}).any({d}) * 1.0",
        "({cond}).all() * {a}",
        "({cond}).sum({d})",
        "{a}.count_nonzero({d})",
        "{a}.kthvalue(1, {d}).values",
        "{a}.quantile(0.3, {d})",
        "torch.softmax({a}, {d})",
        "F.log_softmax({a}, {d})",
        "F.softmin({a}, {d})",
        "F.normalize({a} + {s}, dim={d})",
        "{a}.renorm(2, {d}, {s})",
        "{a} - {a}.mean({d}, keepdim=True)",
        "{a} / ({a}.abs().sum({d}, keepdim=True) + {s})",
        "{a} * torch.softmax({a}.sum({d}, keepdim=True), {e})",
        "{a}.sum(({d}, {e})) if {d} % {a}.dim() != {e} % {a}.dim() else {a}",
        # running ones, sorts
        "{a}.cumsum({d})",
        "{a}.tanh().cumprod({d})",
        "{a}.logcumsumexp({d})",
        "{a}.cummax({d}).values",
        "{a}.cummin({d}).values",
        "{a}.sort({d}).values",
        "{a}.sort({d}, descending=True).values",
        "{a}.argsort({d}) * 1.0",
        "{a}.topk(1, {d}).values",
        "{a}.msort()",
        "{a}.diff(dim={d})",
        "{a}.flip({d}).cumsum({d})",
        # views and copies
        "{a}.transpose({d}, {e})",
        "{a}.permute(*reversed(range({a}.dim())))",
        "{a}.unsqueeze({d})",
        "{a}.squeeze()",
        "{a}.flatten()",
        "{a}.reshape(-1)",
        "{a}.reshape({a}.shape[::-1])",
        "{a}.flip({d})",
        "{a}.roll({k}, {d})",
        "{a}.narrow({d}, 0, ({a}.size({d}) + 1) // 2)",
        "{a}.select({d}, -1)",
        "{a}[..., ::2]",
        "{a}[1:]",
        "{a}[..., -1:]",
        "{a}[None]",
        "{a}.movedim({d}, {e})",
        "{a}.T if {a}.dim() == 2 else {a}.mT",
        "{a}.chunk(2, {d})[-1]",
        "{a}.split(2, {d})[0]",
        "{a}.tensor_split({k}, {d})[0]",
        "{a}.unbind({d})[0]",
        "{a}.expand({k}, *{a}.shape)",
        "{a}.repeat({k}, *[1] * {a}.dim())",
        "{a}.repeat_interleave(2, {d})",
        "{a}.tile(2)",
        "torch.cat([{a}, {c}], {d})",
        "torch.cat([{a}, {a}.flip({d})], {d})",
        "torch.stack([{a}, {c}], {d})",
        "torch.cat([{a}.narrow({d}, 0, 1), {c}], {d})",
        "{a}.unfold({d}, 2, 1)",
        "{a}.unfold({d}, 1, 2)",
        "{a}.as_strided(({a}.numel(),), (1,)) if {a}.is_contiguous() else {a}",
        "{a}.diagonal(0, {d}, {e}) if {d} % {a}.dim() != {e} % {a}.dim() else {a}",
        "{a}.rot90(1, (0, 1))",
        "{a}.swapaxes({d}, {e})",
        "{a}.view(*{a}.shape[:-1], 1, {a}.shape[-1])",
        "torch.broadcast_tensors({a}, {b})[0]",
        "torch.meshgrid({a}.flatten()[:5], {a}.flatten()[:3], indexing='ij')[0]",
        "{a}.to(memory_format=torch.channels_last) if {a}.dim() == 4 else {a}",
        "torch.tril({a}, {k} - 2) if {a}.dim() > 1 else {a}",
        "torch.triu({a}) if {a}.dim() > 1 else {a}",
        "{a}.new_full({a}.shape, {r}) * {a}",
        "torch.zeros_like({a}) + {b}",
        "torch.full_like({a}, {r})",
        "torch.ones({a}.shape[-1:]) * {a}",
        "torch.arange({a}.shape[-1]) * {a}",
        "torch.linspace(-1, 1, {a}.shape[-1]) + {a}",
        "torch.eye({a}.shape[-1]) * {a}.unsqueeze(-1)",
        "torch.atleast_2d({a})",
        "torch.hstack([{a}, {c}])",
        "torch.block_diag({a}, {c}) if {a}.dim() == 2 else {a}",
        "{a}.view(torch.int32).size(-1) * {a}",
        "{a}.real",
        "torch.flatten({a}, 0, -1)[: {k}]",
        "{a}.diag_embed()",
        # several ways to index
        "{a}[{a}.argsort(0)[:, 0]] if {a}.dim() == 2 else {a}",
        "{a}.gather({d}, {a}.argsort({d}))",
        "torch.take_along_dim({c}, {a}.argmax({d}, keepdim=True), {d})",
        "{a}.take(torch.tensor([0, -1, 0]))",
        "{a}[n0.flatten() % {a}.shape[0]]",
        "{a}.index_select({d}, n0.flatten() % {a}.shape[{d}])",
        "{a}[..., n0 % {a}.shape[-1]]",
        "F.one_hot(n0, 4) * {s}",
        "F.one_hot({a}.argmax({d}), {a}.shape[{d}]).sum(-1)",
        "{a}.scatter({d}, {a}.argmax({d}, keepdim=True), {r})",
        "{a}.scatter_add({d}, {c}.argsort({d}), {c})",
        "{a}.scatter_reduce({d}, {c}.argmin({d}, keepdim=True), {c}, 'amax')",
        "{a}.scatter_reduce({d}, {c}.argsort({d}) // 2, {c}, 'mean', include_self={flag})",
        (
            "{a}.index_add({d}, torch.tensor([0, 0]), {c}.narrow({d}, 0, 1).repeat_interleave(2, {d}),"
            " alpha={r})"
        ),
        "{a}.index_copy({d}, torch.tensor([0]), {c}.narrow({d}, -1, 1))",
        "{a}.index_fill({d}, torch.tensor([0]), {r})",
        "{a}.index_put((n0.flatten() % {a}.shape[0],), {c}[0], accumulate={flag})",
        "torch.slice_scatter({a}, {c}.narrow({d}, 0, 1), {d}, 0, 1)",
        "torch.select_scatter({a}, {c}.select({d}, 0), {d}, -1)",
        "torch.searchsorted({a}.flatten().sort().values, {c}) * 0.1",
        "torch.bucketize({a}, torch.tensor([-1.0, 0.0, 0.5], dtype={a}.dtype)) + {a}",
        "torch.bincount(n0.flatten(), minlength=5) * {s}",
        "{a}.masked_scatter({cond}, {c})",
        "torch.index_reduce({a}, {d}, torch.tensor([0]), {c}.narrow({d}, 0, 1), 'amin')",
        # products
        "{a} @ {c}.mT if {a}.dim() > 1 else {a} @ {c}",
        "{a}.mT @ {c} if {a}.dim() > 1 else {a}.outer({c})",
        "torch.einsum('...i,...i->...', {a}, {c})",
        "torch.einsum('i...,i...->...', {a}, {c})",
        "torch.einsum('...ij,...ik->...jk', {a}, {c}) if {a}.dim() > 1 else {a}",
        "torch.tensordot({a}, {c}, dims={a}.dim())",
        "F.linear({a}, {c}.flatten(0, -2)) if {a}.dim() > 1 else {a}",
        "torch.outer({a}.flatten()[:7], {c}.flatten()[:5])",
        "torch.kron({a}.flatten()[:3], {c}.flatten()[:4])",
        "torch.inner({a}, {c})",
        "torch.addmm({a}, {a}, {c}.mT @ {a}) if {a}.dim() == 2 else {a}",
        "torch.baddbmm({a}, {a}, {c}.mT @ {a}, beta={s}) if {a}.dim() == 3 else {a}",
        "torch.chain_matmul({a}, {c}.T, {a}) if {a}.dim() == 2 else {a}",
        "torch.cdist({a} * 2, {c}) if {a}.dim() > 1 else {a}",
        "F.cosine_similarity({a}, {c} + {s}, dim={d})",
        "F.pairwise_distance({a}, {c} + 3)",
        "torch.cov({a}, correction=0) if {a}.dim() == 2 else {a}",
        "torch.linalg.cross({a}[..., :3], {c}[..., :3]) if {a}.shape[-1] >= 3 else {a}",
        "torch.linalg.solve({a} @ {a}.mT + 9 * torch.eye({a}.shape[-2]), {c}) if {a}.dim() > 1 else {a}",
        "torch.linalg.inv({a}.mT @ {a} + 5 * torch.eye({a}.shape[-1])) if {a}.dim() > 1 else {a}",
        "torch.logdet({a}.mT @ {a} + 3 * torch.eye({a}.shape[-1])) if {a}.dim() > 1 else {a}",
        "F.scaled_dot_product_attention({a}, {c}, {c}) if {a}.dim() > 2 else {a}",
        "F.scaled_dot_product_attention({a}, {c}, {a}, is_causal=True, scale={s}) if {a}.dim() > 2 else {a}",
        "torch.fft.rfft({a}, dim={d}).abs().square()",
        "torch.fft.fft({a}).real",
        "torch.fft.irfft(torch.fft.rfft({a}), {a}.shape[-1])",
        (
            "torch.fft.irfft(torch.fft.rfft({a}) @ torch.fft.rfft({a}).mH @ torch.fft.rfft({a}),"
            " {a}.shape[-1]) * 0.01 if {a}.dim() > 1 else {a}"
        ),
        "(torch.fft.fft({a}) * torch.polar(torch.ones_like({c}), {c})).imag",
        "torch.fft.ifft2(torch.fft.fft2({a}).roll(1, -1)).real if {a}.dim() > 1 else {a}",
        "torch.view_as_complex(torch.stack([{a}, {c}], -1)).square().real",
        "torch.complex({a}, {c}).transpose(0, -1).conj().imag",
        "torch.view_as_real(torch.fft.fft({a}).index_fill({d}, torch.tensor([0]), {r})).sum(-1)",
        "torch.fft.irfft2(torch.fft.rfft2({a}), {a}.shape[-2:]) if {a}.dim() > 1 else {a}",
        "torch.fft.rfft({a}).cumsum(-1).real",
        "torch.view_as_real(torch.fft.fft({a}).flip(0) / (torch.complex({c}, {c}) + 9)).flatten(-2)",
        # losses
        *[
            f"F.{name}({{a}}, {{c}}, reduction='{how}')"
            for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss")
            for how in ("mean", "none")
        ],
        "F.binary_cross_entropy_with_logits({a}, {c}.sigmoid())",
        "F.binary_cross_entropy({a}.sigmoid(), {c}.sigmoid(), reduction='none')",
        "F.kl_div(F.log_softmax({a}, {d}), F.softmax({c}, {d}), reduction='batchmean')",
        "F.poisson_nll_loss({a}, {c}.abs())",
        "F.gaussian_nll_loss({a}, {c}, {a}.square() + 1, reduction='sum')",
        "F.cross_entropy({a}, F.softmax({c}, 1)) if {a}.dim() > 1 else {a}",
        "F.cross_entropy({a}, {c}.argmax(1), label_smoothing=0.1) if {a}.dim() > 1 else {a}",
        "F.nll_loss(F.log_softmax({a}, 1), {c}.argmin(1), reduction='none') if {a}.dim() > 1 else {a}",
        "F.cross_entropy({a}, {c}.argmax(1), ignore_index=0, reduction='sum') if {a}.dim() > 1 else {a}",
        "F.hinge_embedding_loss({a}, {c}.sign())",
        "F.margin_ranking_loss({a}, {c}, {c}.sign(), margin=0.1)",
        "F.triplet_margin_loss({a}, {c} + 1, {a}.flip(0) - 1)",
        "F.multilabel_soft_margin_loss({a}, {c}.sigmoid())",
    )
    + per_rank(
        1,
        4,
        "F.layer_norm({a}, ({n},))",
        "F.layer_norm({a}, {a}.shape[-2:], eps=1e-3)",
        "F.rms_norm({a}, ({n},), eps=1e-4)",
        "F.pad({a}, (1, {k}), value={r})",
        "F.pad({a}, (-1, {k}))",
        "F.glu({a}.repeat_interleave(2, -1))",
        "F.softmax({a} * {n} ** -0.5, -1)",
        "torch.nn.functional.prelu({a}, torch.full((1,), 0.2, dtype={a}.dtype))",
        "{a}[..., torch.arange({n}).flip(0)]",
        "F.fold({a}.reshape(1, -1, 1), (1, 1), (1, 1)) if {a}.numel() < 500 else {a}",
        "{a}.softmax(-1).clamp_min(0.01).log()",
    )
    + per_rank(
        3,
        3,
        "F.avg_pool1d({a}, 2, 1)",
        "F.max_pool1d({a}, 2, {k})",
        "F.adaptive_avg_pool1d({a}, {k})",
        "F.adaptive_max_pool1d({a}, 1)",
        "F.interpolate({a}, scale_factor=2, mode='linear', align_corners={flag})",
        "F.interpolate({a}, size={k})",
        "F.pad({a}, (1, 1), mode='reflect')",
        "F.pad({a}, (1, 0), mode='circular')",
        "F.pad({a}, (0, 1), mode='replicate')",
        "F.conv1d({a}, {a}[:2, :, :2], padding={k})",
        "F.lp_pool1d({a}.abs() + 0.1, 2, 2)",
        "F.instance_norm({a})",
        "torch.bmm({a}, {a}.mT)",
        "F.group_norm({a}, {c})",
        "F.batch_norm({a}, None, None, training=True)",
        "F.conv_transpose1d({a}, {a}[0, :, None, :2].repeat(1, 2, 1))",
        "F.local_response_norm({a}, 2)",
        "F.avg_pool1d({a}, 2, 2, padding=1, count_include_pad={flag}, ceil_mode=True)",
    )
    + per_rank(
        4,
        4,
        "F.avg_pool2d({a}, 2, 1)",
        "F.max_pool2d({a}, 2)",
        "F.max_pool2d({a}, (2, 1), 1, (1, 0))",
        "F.adaptive_avg_pool2d({a}, ({k}, 1))",
        "F.adaptive_max_pool2d({a}, ({k}, 2))",
        "F.interpolate({a}, scale_factor=2)",
        "F.interpolate({a}, size=(4, 5), mode='bilinear', align_corners={flag})",
        "F.interpolate({a}, scale_factor=1.5, mode='bicubic')",
        "F.interpolate({a}, scale_factor=0.5, mode='area')",
        "F.pad({a}, (1, 1, 1, 0), mode='reflect')",
        "F.pad({a}, (1, 1, 0, 1), mode='replicate')",
        "F.pad({a}, (0, 1, 1, 0), mode='circular')",
        "F.pad({a}, (1, 0, 2, -1), value={r})",
        "F.unfold({a}, 2)",
        "F.unfold({a}, (2, 1), padding=1, stride=2)",
        "F.fold(F.unfold({a}, 2), {a}.shape[-2:], 2)",
        "F.conv2d({a}, {a}[:2, :, :2, :2], padding=1)",
        "F.conv2d({a}, {a}[:1, :1, :2, :2].repeat({c}, 1, 1, 1), groups={c}, dilation={k}, padding=2)",
        "F.conv_transpose2d({a}, {a}[:1, :, :2, :2].transpose(0, 1).repeat(1, 2, 1, 1), stride={k})",
        "F.instance_norm({a})",
        "F.group_norm({a}, {c})",
        "F.batch_norm({a}, None, None, training=True)",
        "F.pixel_shuffle({a}.repeat(1, 4, 1, 1), 2)",
        "F.pixel_unshuffle({a}.repeat_interleave(2, -1).repeat_interleave(2, -2), 2)",
        "F.channel_shuffle({a}.repeat(1, 2, 1, 1), 2)",
        (
            "F.grid_sample({a}, F.affine_grid(torch.eye(2, 3, dtype={a}.dtype).repeat({a}.shape[0], 1,"
            " 1) * 0.8, (*{a}.shape[:2], 3, 4), align_corners={flag}), align_corners={flag})"
        ),
        (
            "F.grid_sample({a}, {a}.flatten(1)[:, :8].tanh().reshape(-1, 2, {k}, 2) if {k} == 2 else"
            " {a}.new_zeros({a}.shape[0], 2, 2, 2), mode='nearest', padding_mode='border',"
            " align_corners=False)"
        ),
        "F.lp_pool2d({a}.abs() + 0.1, 2, 2)",
        "F.local_response_norm({a}, 3)",
        "F.avg_pool2d({a}, 2, 2, 1, ceil_mode=True, count_include_pad={flag})",
        (
            "F.fractional_max_pool2d({a}, 2, output_size=1,"
            " _random_samples={a}.new_full((*{a}.shape[:2], 2), 0.4))"
        ),
        "{a}.mean((2, 3), keepdim=True) * {a}",
        "{a}.flatten(2).transpose(1, 2)",
        "F.normalize({a}.flatten(1) + 0.1)",
        "torch.einsum('bchw,bdhw->bcd', {a}, {a})",
        "F.max_unpool2d(*F.max_pool2d({a}, 2, return_indices=True), 2)",
    )
)

# whose sizes depend on values
UNKNOWN = table(
    "{a}[{cond}]",
    "{a}[{a}.flatten(1)[:, 0] > {r}]",
    "torch.masked_select({a}, {cond})",
    "{a}[{cond}.nonzero()[:, 0]]",
    "torch.nonzero({a} > {s}) * {r}",
    "torch.unique(n0) * {s}",
    "torch.unique({a}.round(), return_inverse=True)[1] * {r}",
    "{a}.repeat_interleave(torch.arange({a}.shape[0]) % 3, 0)",
    "{a}.repeat_interleave(n0.flatten()[:1] + 1, 0)",
    "{a}[torch.where({a}.select(-1, 0) > {r})[0]]",
    "{a}[n0.flatten()[n0.flatten() < {a}.shape[0]]]",
    "torch.unique_consecutive(n0.flatten()) + {r}",
)


def write(*templates):
    """Writes in place go into a tensor of the program itself, {a}; {b} broadcasts to its shape."""

    def entry(template):
        def text(g):
            a = g.name(lambda t: t.is_floating_point() and t.numel() > 1 and t.dim() > 0)
            if not a.startswith("v"):
                raise Unfit
            shape = g.of(a).shape
            b = g.tensor(
                lambda t: (
                    t.dim() <= len(shape)
                    and all(x in (1, y) for x, y in zip(reversed(t.shape), reversed(shape)))
                )
            )
            return template.format(
                a=a, b=b, c=g.like(a), d=g.dim(a), r=g.number(), s=g.number(0.1, 1.5), cond=g.condition(a)
            )

        return text

    return [entry(t) for t in templates]


WRITES = write(
    "{a}.add_({b})",
    "{a}.mul_({s})",
    "{a}.sub_({b}, alpha={r})",
    "{a}.copy_({b})",
    "{a}.clamp_(-{s}, {s})",
    "{a}.tanh_()",
    "{a}.relu_()",
    "{a}[0] = {c}[-1]",
    "{a}[..., 0] = {r}",
    "{a}[..., ::2] = {c}[..., ::2]",
    "{a}[..., 1:] += {c}[..., :-1].clone()",
    "{a}[1:] = {a}[:-1].clone()",
    "{a}.transpose(0, -1).mul_({c}.transpose(0, -1))",
    "{a}.select({d}, 0).fill_({r})",
    "{a}.narrow({d}, 0, 1).add_({c}.narrow({d}, -1, 1))",
    "{a}.masked_fill_({cond}, {r})",
    "{a}[{a} > {s}] = {r}",
    "{a}.zero_()",
    "{a}.scatter_({d}, {c}.argmax({d}, keepdim=True), {r})",
    "{a}.scatter_add_({d}, {c}.argsort({d}), {c})",
    "{a}.index_add_({d}, torch.tensor([0]), {c}.narrow({d}, -1, 1))",
    "{a}.index_copy_({d}, torch.tensor([0]), {c}.narrow({d}, -1, 1))",
    "{a}.lerp_({c}, {s})",
    "{a}.addcmul_({c}, {c}, value={r})",
    "{a}.view(-1)[:2].mul_({r})",
    "{a}.unsqueeze(0).add_({c})",
    "{a}.detach().mul_({s})",
    "{a}.flatten()[0].add_({r})",
    "{a}.diagonal().add_({r}) if {a}.dim() > 1 else {a}.add_({r})",
    "{a}.put_(torch.tensor([0, 1]), {c}.flatten()[:2])",
    "{a}.index_put_((torch.tensor([0, 0]),), {c}[:1], accumulate=True)",
    "{a}.data.add_({r})",
)

# branches that depend on values: integers of the inputs, computed integers, sizes, and whether values are
# finite
BRANCHES = table(
    "{a} * {r} if n0.max() > 2 else {a} - {b}",
    "{a} if (n0 == {k}).any() else {a}.sin()",
    "{a} * n0.sum().item()",
    "{a} + n0.flatten()[0].item() if not (n0 > 0).all() else {a}",
    "{a}[..., : n0.flatten()[-1] + 1]",
    "{a} * {r} if {cond}.sum() > {a}.numel() // 2 else {a} + {b}",
    "{a}.tanh() if ({a}.argmax({d}) == {k} - 1).any() else {a} * {r}",
    "{a} * {s} if {cond}.sum() % 2 == 0 else -{a}",
    "{a}.cos() if {cond}.sum() else {c}",
    "{a} / max(1, {cond}.sum().item())",
    "{a} * 2 if ({a} / ({c} > {r})).isfinite().all() else {a}.clamp(-1, 1)",
    "{a}.cos() if torch.log({c} - {r}).isnan().any() else {a} * {c}",
    "{a}.detach() if torch.log({a}.sum() - {r}).isfinite() else {a} * {s}",
    "{a} * {r} if {c}[{cond}].numel() > {k} else {c}",
    "{a}[{cond}].sum() * {a} if len({cond}.nonzero()) > {k} else {b}",
    "{a} * len(torch.unique({c}.round())) * 0.1",
    "{a}.select({d}, {a}.abs().flatten().argmax() % {a}.shape[{d}])",
    "F.one_hot(n0, max(n0.max() + 1, 3)).sum() * {a} * 0.1",
    "{a} - ({a}.argmin({d}).max() if {a}.numel() else 0)",
) + write(
    "{a}.mul_({s}) if n0.sum() > 3 else {a}.add_({b})",
    "{a}.add_({b}) if {cond}.sum() > {a}.numel() // 2 else {a}.clamp_(-{s}, {s})",
    "{a}.zero_() if torch.log({c} - {r}).isnan().any() else {a}",
    "{a}.index_fill_({d}, {c}.argmax({d}).flatten()[0], {r})",
)


def layer(make, call="self.m({a})", low=1, high=4, test=lambda t: True):
    """A layer made for the shape of its input {a}: {n} its last size, {c} its second, {o} another size."""

    def entry(g):
        a = g.tensor(lambda t: low <= t.dim() <= high and test(t))
        shape = g.of(a).shape
        fill = {
            "a": a,
            "n": shape[-1],
            "c": shape[1] if len(shape) > 1 else 1,
            "o": g.size(),
            "k": g.integer(1, 3),
            "f": g.integer(1, 2),
            "flag": g.one_of(True, False),
        }
        return make.format(**fill), call.format(**fill)

    return entry


def wide(t):
    return min(t.shape[2:]) > 1


MODULES = [
    layer("nn.Linear({n}, {o}, bias={flag})"),
    layer("nn.Linear({n}, {o})"),
    layer("nn.Sequential(nn.Linear({n}, {o}), nn.ReLU(), nn.Linear({o}, {n}))"),
    layer("nn.LayerNorm({n})"),
    layer("nn.RMSNorm({n}, eps=1e-3)"),
    layer("nn.PReLU()"),
    layer("nn.PReLU({c})", low=2),
    layer("nn.Bilinear({n}, {n}, {o})", "self.m({a}, {a})"),
    layer("nn.Embedding(4, {o})", "self.m(n0)"),
    layer("nn.Embedding(4, {o}, padding_idx=1, scale_grad_by_freq={flag})", "self.m(n0)"),
    layer("nn.EmbeddingBag(4, {o}, mode='mean')", "self.m(n0 if n0.dim() == 2 else n0[None])"),
    layer("nn.Conv1d({c}, {o}, {f}, padding=1)", low=3, high=3),
    layer("nn.Conv1d({c}, {c}, {k}, padding={k}, groups={c}, dilation={f})", low=3, high=3),
    layer("nn.Conv2d({c}, {o}, {f}, {k}, 1)", low=4),
    layer("nn.Conv2d({c}, {c}, 3, 1, 1, groups={c}, bias={flag})", low=4),
    layer("nn.Conv2d({c}, {o}, 1)", low=4),
    layer("nn.Conv3d(1, {k}, 2, padding=1)", "self.m({a}.unsqueeze(1))", low=4),
    layer("nn.ConvTranspose1d({c}, {o}, {f}, {k})", low=3, high=3),
    layer("nn.ConvTranspose2d({c}, {o}, 2, {k}, output_padding=0)", low=4),
    layer("nn.BatchNorm1d({c})", low=2, high=3, test=lambda t: t.numel() > 2 * t.shape[1]),
    layer("nn.BatchNorm2d({c}, momentum=0.3)", low=4, test=wide),
    layer(
        "nn.Sequential(nn.Conv2d({c}, {o}, 3, padding=1), nn.BatchNorm2d({o}), nn.ReLU())", low=4, test=wide
    ),
    layer("nn.InstanceNorm2d({c}, affine=True)", low=4, test=wide),
    layer("nn.GroupNorm(1, {c})", low=2),
    layer("nn.GroupNorm({c}, {c})", low=3, test=wide),
    layer("nn.LSTM({n}, {o}, batch_first={flag})", "self.m({a})[0]", low=3, high=3),
    layer("nn.GRU({n}, {o}, {f})", "self.m({a})[0]", low=3, high=3),
    layer("nn.RNN({n}, {o}, bidirectional={flag})", "self.m({a})[0]", low=3, high=3),
    layer("nn.LSTMCell({n}, {o})", "self.m({a})[1]", low=2, high=2),
    layer("nn.GRUCell({n}, {o})", low=2, high=2),
    layer("nn.MultiheadAttention({n}, 1, batch_first={flag})", "self.m({a}, {a}, {a})[0]", low=3, high=3),
    layer("nn.TransformerEncoderLayer({n}, 1, {o}, dropout=0.0, batch_first={flag})", low=3, high=3),
    layer("nn.MaxPool2d(2, 1, 1, return_indices=False)", low=4),
    layer("nn.AdaptiveAvgPool2d(({k}, {f}))", low=4),
    layer("nn.Upsample(scale_factor={k}, mode='nearest')", low=3),
    layer("nn.utils.parametrizations.weight_norm(nn.Linear({n}, {o}))"),
    layer("nn.utils.parametrizations.spectral_norm(nn.Linear({n}, {o}))"),
    layer("nn.Softmax(-1)"),
    layer("nn.LocalResponseNorm(2)", low=3),
    layer("nn.Flatten()", low=2),
]

# the shape {} is sampled with 2 to 4 dimensions
INPUTS = [
    "torch.randn({})",
    "torch.randn({}).transpose(0, 1)",
    "torch.randn({}).transpose(-2, -1)",
    "torch.randn({}).repeat_interleave(2, -1)[..., ::2]",
    "torch.randn({})[:1].expand({})",
    "torch.randn({}).flip(0)",
    "torch.randn({}, dtype=torch.float32)",
    "torch.randn({})[..., :1].expand({})",
    "torch.randn(2, *{})[1]",
    "torch.randn(({}[0], 2, *{}[1:]))[:, 1]",
    "torch.randn({}).movedim(0, -1)",
    "torch.randn({}[::-1]).permute(*range(len({})))[...]",
    "torch.randn(())",
    "torch.randn({}, dtype=torch.bfloat16)",
    "torch.randn({}[0], 3, 4, 5).to(memory_format=torch.channels_last)",
    "torch.randn(({}[0], 4, 3)).swapaxes(1, 2)[:, :2]",
    "torch.randn({}).as_strided({}, torch.randn({}).stride())",
]

# of the trained parameters; eps is large, as gradients that are zero but for rounding errors would count as
# others
OPTIMIZERS = [
    "torch.optim.SGD(trained, lr=0.05, momentum=0.9)",
    "torch.optim.SGD(trained, lr=0.05)",
    (
        "torch.optim.SGD([{'params': trained[:1], 'lr': 0.01, 'weight_decay': 0.1}, {'params':"
        " trained[1:]}], lr=0.05, momentum=0.5, nesterov=True)"
    ),
    "torch.optim.AdamW(trained, lr=0.01, eps=1e-3)",
    "torch.optim.Adam(trained, lr=0.01, eps=1e-3, amsgrad=True)",
    (
        "torch.optim.Adam([{'params': trained[:1], 'lr': 0.02}, {'params': trained[1:], 'betas': (0.5,"
        " 0.9)}], lr=0.01, eps=1e-3, foreach=False)"
    ),
    "torch.optim.RMSprop(trained, lr=0.01, eps=1e-3, momentum=0.5, centered=True)",
    "torch.optim.Adagrad(trained, lr=0.01, eps=1e-3)",
    "torch.optim.NAdam(trained, lr=0.01, eps=1e-3)",
    "torch.optim.Adadelta(trained, eps=1e-3)",
    "torch.optim.AdamW(trained, lr=0.01, eps=1e-3, fused=True)",
]
SCHEDULES = [
    "None",
    "None",
    "torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)",
    "torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))",
    "torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)",
]
CLIPS = [
    "None",
    "None",
    "nn.utils.clip_grad_norm_(trained, 0.5)",
    "nn.utils.clip_grad_norm_(trained, 0.5, norm_type=float('inf'))",
    "nn.utils.clip_grad_value_(trained, 0.05)",
]
# how a result becomes a term of the loss; the gradient of a sum is a constant
REDUCTIONS = [
    "weighted",
    "lambda r: r.sum()",
    "lambda r: r.mean()",
    "lambda r: r.sum() / 7",
    "lambda r: r.square().mean()",
    "lambda r: r.square().sum() * 0.1",
    "lambda r: r.flatten()[::2].sum()",
    "lambda r: r.flatten().logsumexp(0)",
    "lambda r: r.norm() + r.sum()",
]
