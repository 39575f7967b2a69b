"""Charts in plotly, a view a module: for a notebook, a script's `show()` and a page."""
