"""What a Trace comes to, a question a module: pure functions, which `dlviz.metrics` names."""
