"""Modules of OneFlow that only hold functions which have a public name elsewhere.

DEEP_PATHS[module] = "name=path name ...", the path from `oneflow`; a name alone is the same there.
"""

_MODULES = {
    "affine_grid": "affine_grid=nn.functional.affine_grid",
    "arange": "arange_op=arange",
    "argsort": "argsort_op=argsort",
    "argwhere": "argwhere_op=argwhere",
    "as_tensor": "as_tensor",
    "broadcast_ops": "broadcast_shapes broadcast_tensors broadcast_to",
    "constant": (
        "ones_op=ones ones_like_op=ones_like zeros_op=zeros zeros_like_op=zeros_like full_op=full"
        " full_like_op=full_like new_ones_op=new_ones new_zeros_op=new_zeros new_full_op=new_full"
    ),
    "einsum": "einsum_op=einsum",
    "empty": "empty_op=empty empty_like_op=empty_like new_empty_op=new_empty",
    "expand": "expand_op=expand",
    "global_cast": (
        "local_to_global_op=local_to_global global_to_global_op=global_to_global to_global_op=to_global"
        " to_local_op=to_local"
    ),
    "grid_sample": "grid_sample=nn.functional.grid_sample",
    "is_tensor": "is_tensor_op=is_tensor",
    "linspace": "linspace_op=linspace",
    "logspace": "logspace_op=logspace",
    "masked_select": "masked_select_op=masked_select",
    "math_ops": (
        "addmm addmm_op=addmm arcsin_op=asin asin_op=asin arcsinh_op=asinh asinh_op=asinh arctan_op=atan"
        " atan_op=atan fmod_op=fmod"
    ),
    "meshgrid": "meshgrid_op=meshgrid",
    "nms": "nms_op=nms",
    "nonzero": "nonzero_op=nonzero",
    "norm": "norm",
    "numel": "numel_op=numel",
    "reshape": "reshape_op=reshape view_op=view",
    "roll": "roll_op=roll",
    "scatter": "scatter scatter_add scatter_nd tensor_scatter_nd_update",
    "slice": "slice_op=slice slice_update_op=slice_update",
    "sparse_softmax_cross_entropy": "sparse_softmax_cross_entropy=nn.functional.sparse_softmax_cross_entropy",
    "tensor_buffer": (
        "tensor_buffer_to_tensor_op=tensor_buffer_to_tensor tensor_to_tensor_buffer gen_tensor_buffer"
    ),
    "tensordot": "tensordot",
    "trigonometric_ops": "sign_op=sign sinh_op=sinh tan_op=tan acosh_op=acosh arccosh_op=arccosh",
    "unique": "unique_op=unique",
    "where": "where_op=where",
}
DEEP_PATHS = {f"oneflow.nn.modules.{name}": row for name, row in _MODULES.items()}
