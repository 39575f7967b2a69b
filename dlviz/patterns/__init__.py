"""Collectives as data: who sends which elements to whom in which step, added or copied."""

from dlviz.patterns import (
    butterfly,
    direct,
    halving_doubling,
    hierarchical,
    parameter_server,
    ring,
    tree,
)
from dlviz.patterns.pattern import Transfer, elements_sent, steps

__all__ = [
    "Transfer", "butterfly", "direct", "elements_sent", "halving_doubling", "hierarchical",
    "parameter_server", "ring", "steps", "tree",
]  # fmt: skip
