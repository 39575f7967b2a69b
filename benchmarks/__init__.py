"""dlviz beside its peers, measured in the same run: `make bench`, or `python -m benchmarks ring`.

A module with a function `rows()` that returns a list of `table.Row` is a group of rows; nothing
else is needed.
"""
