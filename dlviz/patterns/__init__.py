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

TITLES = {
    "ring": "ring", "parameter_server": "parameter server", "tree": "tree",
    "butterfly": "butterfly", "halving_doubling": "halving-doubling", "direct": "direct",
    "hierarchical": "hierarchical",
}  # fmt: skip
"""The common name of each all-reduce: for labels, never for lookups."""

__all__ = [
    "TITLES", "Transfer", "butterfly", "direct", "elements_sent", "halving_doubling",
    "hierarchical", "parameter_server", "ring", "steps", "tree",
]  # fmt: skip
