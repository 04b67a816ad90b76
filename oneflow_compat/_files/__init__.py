"""Files: what `oneflow.save` and `oneflow.load` read and write.

`layout` OneFlow's directory layout and its tensor folders; `pickles` OneFlow's pickles, written and
read; `allow` what a safe load may construct; `modules` OneFlow's pickled modules; `atomic` files
that appear whole or not at all; `formats` which format a file has, and safetensors.
"""
