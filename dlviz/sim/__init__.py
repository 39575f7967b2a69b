"""What an operation or a whole schedule would take, without running it. No torch here."""

from dlviz.sim.collective import collective
from dlviz.sim.costs import collective_seconds
from dlviz.sim.engine import Costs, simulate

__all__ = ["Costs", "collective", "collective_seconds", "simulate"]
