"""The parity matrix: for each public name of a library, what agrees with torch and what does not.

`samples` takes arguments from torch's own table of operators, `checks` fills a row's cells, `table`
keeps rows and compares them with a baseline, `page` writes them out. Which names there are,
and which library they belong to, is the caller's business (tests/parity/run.py for oneflow).
"""
