"""The parts of a step that strategies share.

training.py            what all strategies share: options, updates, evaluation, the result
batches.py             batches as torch's users have them, the same on all ranks
sharded_step.py        a step on this rank's shard of each batch, and the shard's weight
whole_model.py         a model whose parts the ranks hold: its state on rank 0
replicas.py            copies of one model: equal values before training
trained_parameters.py  which parameters are trained, also where that changes between steps
layers.py              each layer's forward and backward as spans
prices.py              what a layer costs on a machine
hooks.py               helpers for hooks on a user's model
batch_norm.py          statistics of a shard, or of the whole batch
"""
