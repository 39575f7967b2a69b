"""Every view for paper: matplotlib figures, to be saved as SVG, PDF or PNG.

    figure = dlviz.viz.print.timeline(run.trace, step=3)
    figure.savefig("step.pdf")

Colours, patterns, rows and strips are those of the other media. Paper has no hover, so a label
stands wherever it fits. Lengths are inches (paper.py).
"""

from dlviz.viz.print.bars import breakdown, compare, timelines
from dlviz.viz.print.cost_map import cost_map
from dlviz.viz.print.costs import costs
from dlviz.viz.print.maps import curve, traffic
from dlviz.viz.print.matrices import matrices
from dlviz.viz.print.messages import messages
from dlviz.viz.print.methods import disagreement, losses, spectrum
from dlviz.viz.print.pipeline import bubble, memory
from dlviz.viz.print.plans import plans
from dlviz.viz.print.servers import bars, stability, staleness
from dlviz.viz.print.timeline import timeline

__all__ = [
    "bars",
    "breakdown",
    "bubble",
    "compare",
    "cost_map",
    "costs",
    "curve",
    "disagreement",
    "losses",
    "matrices",
    "memory",
    "messages",
    "plans",
    "spectrum",
    "stability",
    "staleness",
    "timeline",
    "timelines",
    "traffic",
]
