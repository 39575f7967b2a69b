"""Questions to a Trace, one a module: `dlviz.metrics` names those that give a number."""
