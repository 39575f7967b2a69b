"""Cost models: what an operation would take on a Machine, without running it. No torch here."""

from dlviz.sim.collective import collective
from dlviz.sim.costs import collective_seconds

__all__ = ["collective", "collective_seconds"]
