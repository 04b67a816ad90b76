"""OneFlow's own compute operators: their plain-torch meaning (`*_ref`) and the kernels of `oneflow._ext`.

One file a subject. A public function checks its arguments, then runs the kernel of csrc/ where one is
loaded and fits (`_ext.use`), else the `*_ref`. Names are bound by `_tables/c_ops.py`.
"""
