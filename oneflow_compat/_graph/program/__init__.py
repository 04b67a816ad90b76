"""A captured program: its graph, what each input stands for, its passes, and how it prints.

Imports torch only.
"""
