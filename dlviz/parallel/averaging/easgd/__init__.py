"""Elastic averaging SGD: train.py has the three forms of the algorithm, messages.py its two
equations and what master and workers send, stability.py for which alpha it is stable."""

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
