"""The files of `oneflow.save` and `oneflow.load`.

`serialization` defines the two functions, `reading` detects the format of a file and reads it, and
`map_location` moves loaded tensors. Formats: `layout` is OneFlow's folder layout, `pickles` its pickles,
`modules` its pickled layers, `sharded` the folders that several ranks write, `torch_file` torch's files,
`safetensors` the safetensors files. `allow` lists what a safe load may construct. `atomic` writes files that
appear complete or not at all.
"""
