"""Every defect of torch that this package works around.

A row names the defect, the first and the last affected version among those tried, and the function with the
workaround. `tests/core/test_torch_defects.py` has a reproducer for each row, which runs on plain torch. Its
test fails once torch no longer has the defect. Then remove the workaround, the reproducer and the row.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Defect:
    """One defect of torch. `mend` is "file:function" of the workaround; the file is relative to this
    package.
    """

    what: str
    mend: str
    first_version: str = "2.11"
    last_version: str | None = None  # None: the newest tried version has the defect

    @property
    def file(self) -> str:
        return self.mend.partition(":")[0]

    @property
    def function(self) -> str:
        return self.mend.partition(":")[2]


_RULES = "_global/rules/operators.py:"
_PARTIAL = "_global/rules/partial_results.py:"
_FORMS = "_graph/compile/inductor/decompositions.py:"
_FIXES = "_graph/compile/inductor/upstream_fixes.py:"
_IN_PLACE = "_graph/compile/inductor/in_place_fixes.py:"
_REWRITES = "_graph/compile/inductor/rewrites.py:"

EAGER = {
    "batch norm, gradient of one image": Defect(
        "The CPU kernel of batch norm misreads a channels-last gradient of a single image.",
        "_ops/nn/norm.py:gradient_row_by_row",
    ),
    "batch norm, input of width 1": Defect(
        "The CPU kernel of batch norm treats an input with a size of 1 as channels last.",
        "_ops/nn/norm.py:with_right_gradient",
    ),
    "instance norm, gradient of a batch": Defect(
        "The CPU kernel of instance norm misreads a channels-last gradient of a batch.",
        "_ops/nn/norm.py:gradient_row_by_row",
    ),
    "pixel shuffle, empty batch": Defect(
        "The gradient of pixel_shuffle has the shape of the result if the batch is empty.",
        "nn/modules/pixelshuffle.py:forward",
    ),
    "fused SGD, half precision": Defect(
        "Fused SGD on the CPU leaves most elements of float16 and bfloat16 tensors unchanged.",
        "_graph/capture/update/forms.py:_half_on_cpu",
        last_version="2.13",
    ),
    "operator that fails in a trace": Defect(
        "After an operator failed under torch.jit.trace, the next one ends the process.",
        "_method.py:_unless_traced",
    ),
    "writes of lists under a mode": Defect(
        "Under a dispatch mode, torch._foreach_mul_ counts no writes, and a view has its old gradient.",
        "_graph/capture/written_lists.py:calls_of_apart",
    ),
    "order of the last stage in 1F1B": Defect(
        "Schedule1F1B numbers the micro batches of the last stage's forward parts from 1 instead of 0.",
        "_graph/pipeline_plan.py:_numbered_from_zero",
    ),
}

# DTensor, on two ranks
DTENSOR = {
    "reductions over no dimension": Defect(
        "A reduction over an empty list of dimensions fails. The empty list means all dimensions.",
        _RULES + "reductions over no dimension",
    ),
    "logsumexp with keepdim": Defect(
        "logsumexp numbers the remaining dimensions as if keepdim were False.",
        _RULES + "logsumexp with keepdim",
    ),
    "negative dim of cumsum": Defect(
        "cumsum treats a negative dimension as not sharded.",
        _RULES + "negative dim",
        last_version="2.13",
    ),
    "mean of a class loss": Defect(
        "The mean of nll_loss is the mean of the shards' means, but shards may ignore different targets.",
        _RULES + "means of class losses",
        last_version="2.13",
    ),
    "gradient of a mean": Defect(
        "The gradients of mse_loss and similar losses divide by the size of a shard.", _PARTIAL + "call"
    ),
    "additions to partial tensors": Defect(
        "Replicated integers are divided before they are added to a partial tensor, which changes the dtype.",
        _RULES + "additions to partial tensors",
    ),
    "gather of other rows": Defect(
        "gather treats the rows of each rank's shard as the first rows.", _RULES + "gather of other rows"
    ),
    "embedding gradient by frequency": Defect(
        "The gradient of an embedding counts the ids of a shard, not all ids.",
        _RULES + "embedding gradients by frequency",
    ),
    "convolution of sharded channels": Defect(
        "A convolution treats shards of channels as shards of samples.", _RULES + "convolutions"
    ),
    "division by partial tensors": Defect(
        "A division by a partial tensor divides by each summand.",
        _RULES + "divisions by partial tensors",
        first_version="2.12",
        last_version="2.12",
    ),
    "selection from partial tensors": Defect(
        "index_select from a partial tensor returns only the values of each rank's own indices.",
        _RULES + "selections from partial tensors",
        last_version="2.12",
    ),
}

# torch.compile with inductor on the CPU
INDUCTOR = {
    "softshrink of NaN": Defect("softshrink turns NaN into 0.", _FORMS + "_softshrink"),
    "sum with a multiple of a product": Defect("add(c, a @ b, alpha=-2) drops alpha.", _FORMS + "_sum"),
    "tensor written with a part of itself": Defect(
        "h.index_add(0, i, h) reads rows after it has added to them.", _IN_PLACE + "private_memory_reused"
    ),
    "write into an expanded constant": Defect(
        "index_put of an expanded constant writes its single element.", _IN_PLACE + "private_memory_reused"
    ),
    "row of a matrix with gaps": Defect(
        "x = base[:, :7]; y.copy_(x); y[6:7].index_fill_(1, i, 0.0) writes into x.",
        _IN_PLACE + "overlaps_found",
    ),
    "copy of a tensor that is written later": Defect(
        "t = a.clone(); a.copy_(b); b.copy_(t) leaves b unchanged.", _IN_PLACE + "old_values_kept"
    ),
    "copy between two writes": Defect(
        "q[i] = x; t = q.clone(); q.zero_() leaves t zero.", _IN_PLACE + "private_memory_reused"
    ),
    "index computed from the written tensor": Defect(
        "q[f(q)] = x computes the index from elements that it has written.", _IN_PLACE + "readers_realized"
    ),
    "elements moved in place": Defect(
        "c = q[1:].chunk(2)[0]; c[0], c[-1] = c[-1].clone(), c[0].clone() reads what the loop has written.",
        _IN_PLACE + "moved_values_realized",
    ),
    "second write in place": Defect(
        "q[i] = x; q.add_(q.roll(1, 0)) reads rows that the addition has written.",
        _IN_PLACE + "versions_compared",
    ),
    "remainder": Defect(
        "x % y is computed as x - floor(x / y) * y, which is not exact.", _FORMS + "_remainder"
    ),
    "floor division": Defect(
        "x // y floors the rounded quotient: 11.0 // 0.44 gives 25.", _FORMS + "_floor_divide"
    ),
    "write through unfold": Defect(
        "A write through x.unfold() loses the elements between the windows.",
        "_graph/compile/inductor/out_of_reach.py:writes_windows",
    ),
    "average pooling with ceil_mode": Defect(
        "The gradient of an average pooling divides by the full window at the edge.",
        _FORMS + "_avg_pool_backward",
    ),
    "nearest resizing": Defect(
        "A resize by a fractional factor uses the factor, but eager mode uses the sizes.",
        "_graph/compile/inductor/resizing.py:nearest_scales",
    ),
    "gradient of nearest resizing": Defect(
        "The gradient of a resize by a fractional factor uses other locations than forward.",
        "_graph/compile/inductor/resizing.py:nearest_backward",
    ),
    "multilabel margin loss": Defect(
        "multilabel_margin_loss counts targets after the last label.", _FORMS + "_multilabel_margin"
    ),
    "multi margin loss of one row": Defect(
        "multi_margin_loss of one row without reduction returns one dimension.", _FORMS + "_multi_margin"
    ),
    "write before a read in a fused loop": Defect(
        "A product that reads scatter_add's result runs before it if its loops are fused with a softmax.",
        _FIXES + "dependencies_kept",
    ),
    "sum in two results": Defect(
        "A sum of bfloat16 values that is stored twice does not compile (gradients of two added biases).",
        _FIXES + "stores_apart",
    ),
    "gradient of an inverse transform": Defect(
        "Reads of a complex tensor run before a write through its view (the gradient of irfft).",
        _FIXES + "views_kept",
    ),
    "index out of bounds in a parallel loop": Defect(
        "The test of an index throws inside a loop that threads share, which ends the process.",
        "_graph/compile/inductor/bounds_checks.py:tests_noted",
    ),
    "index test under a mask of one row": Defect(
        "An index that is read under a mask of one element does not compile.",
        "_graph/compile/inductor/bounds_checks.py:scalar_masks_spread",
        last_version="2.11",
    ),
    "cumsum of a constant": Defect(
        "cumsum of a constant tensor has the dtype of the constant.", _REWRITES + "sums_of_constants"
    ),
    "kernel with other strides than its fake kernel": Defect(
        "The gradient of replication_pad2d of a channels-last image raises an error about strides.",
        "_graph/compile/inductor/kernel_results.py:results_laid_out",
    ),
    "weight norm of half": Defect(
        "The gradient of a weight norm in float16 raises an error, because the norms have another dtype.",
        _FORMS + "_weight_norm",
    ),
    "negative index": Defect(
        "index_select, index_add and index_copy count negative indices from the end.",
        _FORMS + "_without_negative",
    ),
    "probability out of range": Defect(
        "binary_cross_entropy does not check that probabilities lie between 0 and 1.",
        _FORMS + "_checked_cross_entropy",
    ),
    "memory outside of a tensor": Defect(
        "as_strided() beyond the memory of its argument reads foreign memory.",
        "_graph/compile/inductor/out_of_reach.py:leaves_memory",
    ),
    "rows in random order": Defect(
        "The gradient of x[torch.randperm(n)] does not compile.",
        _REWRITES + "permutations_apart",
        first_version="2.13",
    ),
    "extremes of 8-bit integers": Defect(
        "Minimum, maximum, argmin and argmax of int8 and uint8 compare zeros that fill the vector.",
        _FORMS + "_extreme",
        first_version="2.13",
    ),
    "any of uint8": Defect(
        "any() of uint8 returns bool, but eager mode returns uint8.", _FORMS + "_truth", first_version="2.13"
    ),
    "equal samplings": Defect(
        "fx_graph_cse makes two samplings by randn_like of one tensor one sampling.",
        "_graph/compile/inductor/samplers.py:equal_samplings_apart",
        first_version="2.13",
    ),
    "numbers nobody reads": Defect(
        "With fallback_random, a dropout whose result is not used does not advance the generator.",
        "_graph/compile/inductor/samplers.py:unread_samplings_kept",
        first_version="2.13",
    ),
    "layout of sampled memory": Defect(
        "With fallback_random, randn_like of a channels-last tensor fills memory in another order.",
        _REWRITES + "samplers_in_captured_layout",
        first_version="2.13",
    ),
    "random integers of a range": Defect(
        "The code of a graph with random_(low, high) is no Python, because the overload is named `from`.",
        "_graph/compile/inductor/samplers.py:random_from",
        first_version="2.13",
    ),
    "product of NaN and 0": Defect(
        "x * 0 is folded to 0, but NaN and infinite elements give NaN.",
        _REWRITES + "products_with_zero",
        first_version="2.13",
    ),
    "argument returned for a product with one": Defect(
        "The result of x * torch.full((), 1.0) is x itself, whose later writes change the result.",
        "_graph/compile/inductor/separate_results.py:results_apart",
    ),
    "buffer read after a write": Defect(
        "x.add_(y); return x.softmax(-1), x.sum(0) does not compile for float64.",
        "_graph/compile/inductor/upstream_fixes.py:unread_buffers_kept",
    ),
    "list of one result": Defect(
        "With the C++ wrapper, an operator that returns a list of one tensor ends the process.",
        "_graph/compile/inductor/upstream_fixes.py:lists_of_one_read",
    ),
}

DEFECTS = {**EAGER, **DTENSOR, **INDUCTOR}
