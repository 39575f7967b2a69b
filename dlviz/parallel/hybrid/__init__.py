"""Data, pipeline and tensor parallelism together: one model on a mesh of ranks with three axes.

trainer.py     train, and what a step is: read it first
parts.py       which layers and stages a rank holds
replica.py     the rows and microbatches of a replica, and their weights
gradients.py   averaging over the replicas, and clipping
whole.py       the whole model's state, assembled on rank 0
checks.py      whether mesh, model and schedule fit together
"""

from dlviz.parallel.hybrid.trainer import train

__all__ = ["train"]
