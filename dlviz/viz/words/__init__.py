"""What pictures say: text.py has names, times and sizes, labels.py the bars of a timeline; idle.py,
waits.py, prediction_error.py and hosts.py put the results of `dlviz.analysis` into words."""
