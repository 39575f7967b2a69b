"""Strategies for training one network on many ranks.

data.py           gradients averaged after backward, and DDP: when a bucket leaves
buckets.py        what is in a bucket
layers.py         each layer's forward and backward as spans
update_rules.py   how a gradient moves the weights, from SGD to Adam
pipeline/         stages on ranks, by any schedule
"""

from dlviz.parallel import data, pipeline, update_rules

__all__ = ["data", "pipeline", "update_rules"]
