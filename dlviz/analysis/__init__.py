"""What a Trace comes to, a question a module: `dlviz.metrics` names those that give a number."""
