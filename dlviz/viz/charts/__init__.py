"""Charts in plotly, one view per module: for a notebook, a script's `show()` and a page."""
