"""Numbers of a trace: makespan, bubble, bytes, memory, bandwidth; one, or one per rank.

Every metric of time takes `clock`: "device" reads the columns start and end, "wall" wall_start and
wall_end ("measured" always means the wall clock). Times are in seconds, sizes in bytes, an array
has one entry per rank. The functions are in dlviz/analysis, a question a module.
"""

from dlviz.analysis.bubble import (
    CHUNKED,
    bubble_formula,
    bubble_fraction,
    bubble_ratio,
    bubble_ratio_formula,
    busy,
    idle_inside,
)
from dlviz.analysis.columns import COMMUNICATION, COMPUTE, OTHER, UPDATE
from dlviz.analysis.descent import descent, to_target
from dlviz.analysis.disagreement import disagreement
from dlviz.analysis.memory import peak_in_flight, peak_memory
from dlviz.analysis.messages import algorithm_bandwidth, bus_bandwidth, bytes_sent, crossings
from dlviz.analysis.overlap import breakdown, communication_ratio, exposed_communication, overlap
from dlviz.analysis.path import critical_path
from dlviz.analysis.staleness import staleness
from dlviz.analysis.steps import makespan, seconds_per_step, step_seconds

__all__ = [
    "CHUNKED", "COMMUNICATION", "COMPUTE", "OTHER", "UPDATE", "algorithm_bandwidth", "breakdown",
    "bubble_formula", "bubble_fraction", "bubble_ratio", "bubble_ratio_formula", "bus_bandwidth",
    "busy", "bytes_sent", "communication_ratio", "critical_path", "crossings", "descent",
    "disagreement", "exposed_communication", "idle_inside", "makespan", "overlap", "peak_in_flight",
    "peak_memory", "seconds_per_step", "staleness", "step_seconds", "to_target",
]  # fmt: skip
