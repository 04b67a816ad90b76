"""Graphs and their state in files and state dicts. `stored_graph.py` has the methods of Graph."""
