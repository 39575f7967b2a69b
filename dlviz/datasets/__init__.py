"""Readers for the files in `data/`, and functions that cut a dataset into batches and shards.

Every rank draws the same batch from the same seed and takes its own shard, so that n ranks together
see exactly what one process sees:

    for images, labels in batches(*digits("train"), batch=64, seed=0, steps=100):
        images = shard(images, comm.rank, comm.size)
        labels = shard(labels, comm.rank, comm.size)
"""

from dlviz.datasets.cut import batches, dealt_by_label, joined, shard, trim
from dlviz.datasets.digits import digits
from dlviz.datasets.idx import idx
from dlviz.datasets.sentences import entropy_per_token, sentences, vocabulary

__all__ = [
    "batches",
    "dealt_by_label",
    "digits",
    "entropy_per_token",
    "idx",
    "joined",
    "sentences",
    "shard",
    "trim",
    "vocabulary",
]
