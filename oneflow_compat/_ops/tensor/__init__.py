"""Methods of tensors that OneFlow adds or extends: rows of `_tables/tensor.py`; and how tensors print."""
