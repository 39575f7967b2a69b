"""Elastic averaging SGD: train.py has the three forms of the algorithm, messages.py its two
equations and the messages of master and workers, stability.py the stable range of alpha."""

from dlviz.parallel.averaging.easgd.stability import spectral_radius, stable_alpha
from dlviz.parallel.averaging.easgd.train import (
    asynchronous,
    normalised,
    round_robin,
    synchronous,
    train,
    xavier,
)

__all__ = [
    "asynchronous",
    "normalised",
    "round_robin",
    "spectral_radius",
    "stable_alpha",
    "synchronous",
    "train",
    "xavier",
]
