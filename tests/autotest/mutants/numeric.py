"""Bugs of values, shapes, dtypes and gradients."""

import functools

from .registry import (
    F,
    mutant,
    of_a_product,
    of_a_vector,
    of_one_tensor,
    of_two_tensors,
    torch,
    with_gradient,
)


def on_some(function, condition, change):
    """The operator with change(result) for the inputs of a condition."""

    def operator(x, *args, **kwargs):
        out = function(x, *args, **kwargs)
        return torch.where(condition(x), change(out), out)

    return operator


def named(name, function):
    function.__name__ = name
    return function


def plant(kind, path, name, function, program=None, **options):
    mutant(kind, path, program, **options)(named(name, lambda *args, **kwargs: function(*args, **kwargs)))


# ---------------------------------------------------------------------- error size
plant("error size", "exp", "exp_off_by_1e_6", lambda x: x.exp() * (1 + 1e-6))
plant("error size", "tanh", "tanh_off_by_1e_5", lambda x: x.tanh() * (1 + 1e-5))
plant("error size", "sin", "sin_off_by_1e_4", lambda x: x.sin() * (1 + 1e-4))
plant("error size", "sigmoid", "sigmoid_off_by_1_percent", lambda x: x.sigmoid() * 1.01)
plant("error size", "cos", "cos_plus_1e_6", lambda x: x.cos() + 1e-6)
plant("error size", "sum", "sum_off_by_3e_6", lambda x: x.sum() * (1 + 3e-6))
plant("error size", "matmul", "matmul_off_by_1e_5", lambda a, b: (a @ b) * (1 + 1e-5), of_a_product("matmul"))
plant("error size", "mean", "mean_off_by_1e_4", lambda x: x.mean() * (1 + 1e-4))
plant(
    "error size",
    "nn.functional.softmax",
    "softmax_off_by_2e_6",
    lambda x, dim: F.softmax(x, dim) * (1 + 2e-6),
    of_one_tensor("nn.functional.softmax", dim=1),
)
plant("error size", "nn.functional.gelu", "gelu_by_tanh", lambda x: F.gelu(x, approximate="tanh"))
plant("error size", "erf", "erf_of_7_digits", lambda x: (x.erf() * 1e6).round() / 1e6 + 0 * x)
plant("error size", "expm1", "expm1_that_cancels", lambda x: x.exp() - 1)


# ---------------------------------------------------------------------- only some values
plant(
    "only some values",
    "nn.functional.relu",
    "relu_wrong_for_negative_values",
    on_some(F.relu, lambda x: x < -0.5, lambda y: y + 0.1),
)
plant(
    "only some values", "relu", "relu_wrong_above_3", on_some(torch.relu, lambda x: x > 3, lambda y: y * 0.9)
)
plant("only some values", "abs", "abs_wrong_at_one", on_some(torch.abs, lambda x: x == 1, lambda y: y + 1))
plant(
    "only some values", "sign", "sign_of_zero_is_one", on_some(torch.sign, lambda x: x == 0, lambda y: y + 1)
)
plant("only some values", "exp", "exp_wrong_at_zero", on_some(torch.exp, lambda x: x == 0, lambda y: y * 2))
plant("only some values", "floor", "floor_truncates", lambda x: x.trunc() + 0 * x)
plant("only some values", "round", "round_half_away_from_zero", lambda x: x.sign() * (x.abs() + 0.5).floor())
plant("only some values", "tanh", "tanh_saturates_at_5", lambda x: x.tanh().where(x.abs() < 5, x.sign()))
plant(
    "only some values",
    "sigmoid",
    "sigmoid_wrong_below_minus_10",
    on_some(torch.sigmoid, lambda x: x < -10, torch.zeros_like),
)
plant(
    "only some values",
    "sqrt",
    "sqrt_of_small_values_is_zero",
    on_some(torch.sqrt, lambda x: x.abs() < 1e-3, torch.zeros_like),
)
plant(
    "only some values",
    "argmax",
    "argmax_takes_the_last_of_ties",
    lambda x: x.numel() - 1 - x.flatten().flip(0).argmax(),
)
plant(
    "only some values", "abs", "abs_of_zero_is_negative_zero", on_some(torch.abs, lambda x: x == 0, torch.neg)
)
plant("only some values", "mul", "mul_drops_the_sign_of_zero", lambda a, b: a * b + 0, of_two_tensors("mul"))
plant(
    "only some values",
    "maximum",
    "maximum_wrong_for_ties",
    lambda a, b: torch.where(a == b, a + 1, a.maximum(b)),
    of_two_tensors("maximum"),
)
plant(
    "only some values",
    "log1p",
    "log1p_of_tiny_values",
    on_some(torch.log1p, lambda x: x.abs() < 1e-3, lambda y: y * 1.01),
)
plant(
    "only some values",
    "clamp",
    "clamp_excludes_its_bound",
    lambda x, low: torch.where(x <= low, x * 0 + low + (x == low), x),
    lambda api: api.torch.clamp(api.random_tensor(2), 0.5),
)
plant(
    "only some values",
    "nn.functional.hardtanh",
    "hardtanh_wrong_far_out",
    on_some(F.hardtanh, lambda x: x.abs() > 50, lambda y: y * 2),
)
plant(
    "only some values",
    "heaviside",
    "heaviside_at_zero",
    lambda x, v: (x > 0).to(x.dtype),
    lambda api: api.torch.heaviside(
        api.random_tensor(2, 3, 4, requires_grad=False), api.random_tensor(2, 3, 4, requires_grad=False)
    ),
)
plant(
    "only some values",
    "nan_to_num",
    "nan_to_num_keeps_infinity",
    lambda x: torch.where(x.isnan(), x * 0, x),
    lambda api: api.torch.nan_to_num(api.random_tensor(2, special=True)),
)


# ---------------------------------------------------------------------- shape and layout
def of_a_case(function, condition, change):
    """The operator with change(result) if condition(input tensor)."""

    def operator(x, *args, **kwargs):
        out = function(x, *args, **kwargs)
        return change(out) if condition(x) else out

    return operator


def plus_one(y):
    return y + 1


plant(
    "shape and layout",
    "relu",
    "relu_wrong_if_transposed",
    of_a_case(torch.relu, lambda x: not x.is_contiguous(), plus_one),
)
plant(
    "shape and layout",
    "sum",
    "sum_wrong_above_a_vector",
    of_a_case(torch.sum, lambda x: x.numel() > 32, plus_one),
)
plant(
    "shape and layout", "prod", "prod_of_nothing", of_a_case(torch.prod, lambda x: x.numel() == 0, plus_one)
)
plant(
    "shape and layout",
    "exp",
    "exp_wrong_with_an_offset",
    of_a_case(torch.exp, lambda x: x.storage_offset() > 0, plus_one),
)
plant(
    "shape and layout",
    "cos",
    "cos_reads_expanded_memory",
    of_a_case(torch.cos, lambda x: 0 in x.stride(), plus_one),
)
plant(
    "shape and layout",
    "sin",
    "sin_of_a_scalar",
    of_a_case(torch.sin, lambda x: x.dim() == 0, plus_one),
    lambda api: api.torch.sin(api.random_tensor()),
)
plant(
    "shape and layout",
    "tanh",
    "tanh_of_five_dimensions",
    of_a_case(torch.tanh, lambda x: x.dim() == 5, plus_one),
    lambda api: api.torch.tanh(api.random_tensor()),
)
plant(
    "shape and layout", "mean", "mean_of_one_row", of_a_case(torch.mean, lambda x: x.shape[0] == 1, plus_one)
)
plant(
    "shape and layout",
    "cumsum",
    "cumsum_of_many_rows",
    of_a_case(torch.cumsum, lambda x: x.shape[0] > 4, plus_one),
    of_one_tensor("cumsum", 1),
)
plant("shape and layout", "t", "t_loses_a_dimension_of_one", lambda x: x.t().squeeze())
plant(
    "shape and layout",
    "flip",
    "flip_of_odd_sizes",
    of_a_case(torch.flip, lambda x: x.shape[0] % 2 == 1 and x.shape[0] > 1, plus_one),
    of_one_tensor("flip", [0]),
)
plant(
    "shape and layout",
    "neg",
    "neg_ignores_strides",
    lambda x: (
        -x.as_strided(x.shape, x.contiguous().stride(), x.storage_offset())
        if x.numel()
        and x.storage_offset() == 0
        and x.untyped_storage().nbytes() >= x.numel() * x.element_size()
        else -x
    ),
)
plant(
    "shape and layout",
    "sort",
    "sort_is_not_stable_for_long_rows",
    lambda x: (
        torch.return_types.sort((torch.sort(x)[0], torch.sort(x)[1].flip(-1)))
        if x.shape[-1] > 16
        else torch.sort(x)
    ),
    of_a_vector("sort"),
    beyond="the sizes are given: 1 to 7",
)


# ---------------------------------------------------------------------- dtype
def of_dtype(dtype, function, change=plus_one):
    return of_a_case(function, lambda x: x.dtype == dtype, change)


plant("dtype", "relu", "relu_wrong_in_float64", of_dtype(torch.float64, torch.relu))
plant("dtype", "exp", "exp_wrong_in_bfloat16", of_dtype(torch.bfloat16, torch.exp))
plant("dtype", "sin", "sin_wrong_in_float16", of_dtype(torch.float16, torch.sin))
plant("dtype", "tanh", "tanh_of_float64_in_float32", lambda x: x.float().tanh().to(x.dtype))
plant("dtype", "cos", "cos_returns_float64", lambda x: x.cos().double())
plant(
    "dtype",
    "sigmoid",
    "sigmoid_of_half_returns_float32",
    lambda x: x.float().sigmoid() if x.dtype == torch.float16 else x.sigmoid(),
)
plant("dtype", "argmin", "argmin_returns_int32", lambda x: x.argmin().int())
plant("dtype", "eq", "eq_returns_uint8", lambda a, b: (a == b).to(torch.uint8), of_two_tensors("eq"))
plant(
    "dtype",
    "sum",
    "sum_of_half_accumulates_in_half",
    lambda x: (
        functools.reduce(torch.add, x.flatten().unbind())
        if x.numel() and x.dtype in (torch.float16, torch.bfloat16)
        else x.sum()
    ),
    lambda api: api.torch.sum(api.random_tensor(2, dim1=200)),
)
plant("dtype", "add", "add_promotes_to_float64", lambda a, b: a.double() + b.double(), of_two_tensors("add"))
plant(
    "dtype",
    "mean",
    "mean_of_bfloat16_truncates",
    lambda x: (x.float().mean() * (1 - 2**-6)).to(x.dtype) if x.dtype == torch.bfloat16 else x.mean(),
)


# ---------------------------------------------------------------------- gradient
def plant_gradient(path, name, function, backward, program=None, kind="gradient", **options):
    mutant(kind, path, program, **options)(named(name, lambda x: with_gradient(function, backward)(x)))


plant_gradient("exp", "gradient_of_exp_off_by_1e_5", torch.exp, lambda g, x: g * x.exp() * (1 + 1e-5))
plant_gradient("sin", "gradient_of_sin_has_the_wrong_sign", torch.sin, lambda g, x: -g * x.cos())
plant_gradient("tanh", "gradient_of_tanh_is_one", torch.tanh, lambda g, x: g)
plant_gradient("relu", "gradient_of_relu_at_zero_is_one", torch.relu, lambda g, x: g * (x >= 0))
plant_gradient(
    "abs", "gradient_of_abs_at_zero_is_one", torch.abs, lambda g, x: g * torch.where(x >= 0, 1, -1)
)
plant_gradient(
    "sqrt", "gradient_of_sqrt_is_clamped", torch.sqrt, lambda g, x: g * 0.5 / x.sqrt().clamp(min=1e-2)
)
plant_gradient(
    "sigmoid",
    "gradient_of_sigmoid_for_large_values",
    torch.sigmoid,
    lambda g, x: g * x.sigmoid() * (1 - x.sigmoid()) * (x.abs() < 4),
)
plant_gradient(
    "cos",
    "gradient_of_cos_in_bfloat16",
    torch.cos,
    lambda g, x: -g * x.sin() * (1.1 if x.dtype == torch.bfloat16 else 1),
)
plant_gradient("log", "gradient_of_log_ignores_the_output_gradient", torch.log, lambda g, x: 1 / x)
plant_gradient("floor", "gradient_of_floor_is_one", torch.floor, lambda g, x: g)
plant_gradient(
    "sum", "gradient_of_sum_is_averaged", torch.sum, lambda g, x: (g / max(x.numel(), 1)).expand_as(x)
)
plant_gradient(
    "neg",
    "gradient_of_neg_missing_for_rows",
    torch.neg,
    lambda g, x: -g * (torch.arange(x.shape[0]) < 3)[:, None],
)


@mutant("gradient", "matmul", of_a_product("matmul"))
def matmul_without_the_gradient_of_its_second_operand(a, b):
    return a @ b.detach()


@mutant("gradient", "mul", of_two_tensors("mul"))
def mul_doubles_the_gradient_of_its_first_operand(a, b):
    return a * b + (a - a.detach()) * b.detach()


@mutant("gradient", "maximum", of_two_tensors("maximum"))
def maximum_gives_ties_to_the_first(a, b):
    return torch.where(a >= b, a, b)


@mutant("gradient", "cumsum", of_one_tensor("cumsum", 1))
def cumsum_without_a_gradient(x, dim):
    return x.detach().cumsum(dim)


@mutant("gradient", "amax", of_one_tensor("amax"))
def amax_gives_the_gradient_to_one_of_ties(x):
    return x.flatten().max(0)[0]


# ---------------------------------------------------------------------- second derivative
def twice_wrong(function, derivative):
    return with_gradient(function, lambda gradient, x: gradient * derivative(x))


plant(
    "second derivative",
    "sin",
    "second_derivative_of_sin_is_zero",
    lambda x: twice_wrong(torch.sin, lambda t: t.detach().cos())(x),
)
plant(
    "second derivative",
    "exp",
    "second_derivative_of_exp_is_doubled",
    lambda x: twice_wrong(torch.exp, lambda t: 2 * t.exp() - t.exp().detach())(x),
)
plant(
    "second derivative",
    "tanh",
    "second_derivative_of_tanh_raises",
    lambda x: twice_wrong(
        torch.tanh,
        lambda t: torch.from_numpy(
            1 - t.detach().double().numpy() ** 2 * 0 - t.detach().double().tanh().numpy() ** 2
        ).to(t.dtype),
    )(x),
)
