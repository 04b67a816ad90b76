"""What every reader and saver of files shares: files from strangers are read safely, and files appear whole.

`errors` defines CheckpointError, `shown` prints values of a file in messages, `budget` bounds the memory of
a load and the keys of its dicts. `opening` opens regular files and zip files. `unpickler` reads pickles, and
`constructors/` holds what they may construct. `torch_file` reads torch's files. `atomic` writes files that
appear complete or not at all.
"""
