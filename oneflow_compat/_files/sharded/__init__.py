"""Sharded checkpoints: a folder that several ranks write and any number of ranks reads.

`checkpoint.json` is the index: the structure of the object, and for each tensor its chunks. The chunks are
entries of safetensors files, of which each rank writes one. A save writes files with new names and then
replaces the index, so the former checkpoint is complete until the new one is.

`trees` turns Python values into JSON, and `tree_reading` JSON into values. `boxes` computes which part of a
tensor a rank has, and `tensors` says what a tensor holds on this rank. `plan` merges what the ranks save and
assigns each chunk to a writer. `index` has the index, `shard_files` the chunks, and `folder` opens both.
`saving`, `background` and `loading` are the stages of a save and a load. `dcp` reads the folders of
torch.distributed.checkpoint.
"""
