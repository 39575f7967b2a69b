"""Data, pipeline and tensor parallelism at once: one model on a mesh of ranks with three axes.

trainer.py     train, and what a step is: read it first
parts.py       which layers a rank holds, and its stages
replica.py     which rows a replica takes, its microbatches, and what each of them weighs
gradients.py   averaged over the replicas, and the norm of all of them
whole.py       the whole model's state, put together on rank 0
checks.py      what must go together before training
"""

from dlviz.parallel.hybrid.trainer import train

__all__ = ["train"]
