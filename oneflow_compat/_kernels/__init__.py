"""OneFlow's own compute operators: their plain-torch meaning (`*_ref`) and the kernels of `oneflow._ext`.

Each file covers one subject. A public function checks its arguments, then runs the kernel of csrc/ if one is
loaded and applies (`_ext.use`), else the `*_ref`. Names are bound by `_tables/c_ops.py`.
"""
