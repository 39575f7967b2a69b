"""Collectives as data: who sends which elements to whom in which step, added or copied."""

from dlviz.patterns import parameter_server, ring
from dlviz.patterns.pattern import Transfer, elements_sent, steps

__all__ = ["Transfer", "elements_sent", "parameter_server", "ring", "steps"]
