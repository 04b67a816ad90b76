"""The files of `oneflow.save` and `oneflow.load`.

`serialization` has the two functions, `reading` the readers of all formats, `map_location` moves loaded
tensors.
`layout` is OneFlow's folder layout, `pickles` its pickles, `modules` its pickled layers, `torch_file` torch's
files, `safetensors` those of that library. `allow` lists what a safe load may construct, `formats` tells the
format of a file, and `atomic` writes files that appear whole or not at all.
"""
