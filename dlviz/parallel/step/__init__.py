"""What a step of several strategies shares.

sharded_step.py        a step on this rank's shard of each batch, and what a shard weighs
replicas.py            copies of one model: equal values before training
trained_parameters.py  which parameters are trained, where that changes between steps
layers.py              each layer's forward and backward as spans
prices.py              what a layer costs on a machine
hooks.py               what hooks on a user's model need
batch_norm.py          a shard's own statistics, or those of the whole batch
"""
