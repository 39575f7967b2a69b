"""Views: each `name(trace, ...)` returns a plotly Figure and does nothing else.

Those in `dlviz.viz.print` return a matplotlib Figure, for paper. `charts/` draws with plotly,
`print/` with matplotlib, each loaded at first use; the modules beside them are shared with widgets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlviz.analysis.contributions import decode, encode
from dlviz.analysis.crossovers import crossovers
from dlviz.analysis.frames import Frame, message_frames
from dlviz.viz.words.waits import waited_for

if TYPE_CHECKING:
    from dlviz.viz import print as print
    from dlviz.viz.charts.axis_bytes import axis_bytes
    from dlviz.viz.charts.bars import bars
    from dlviz.viz.charts.best_so_far import best_so_far
    from dlviz.viz.charts.breakdown import breakdown
    from dlviz.viz.charts.bubble import bubble
    from dlviz.viz.charts.cells import cells
    from dlviz.viz.charts.compare import compare
    from dlviz.viz.charts.compression_map import compression_map
    from dlviz.viz.charts.cost_map import cost_map
    from dlviz.viz.charts.costs import costs
    from dlviz.viz.charts.curve import curve
    from dlviz.viz.charts.cut_map import cut_map
    from dlviz.viz.charts.density import density
    from dlviz.viz.charts.disagreement import disagreement
    from dlviz.viz.charts.drift import drift
    from dlviz.viz.charts.images import images
    from dlviz.viz.charts.layer_path import layer_path
    from dlviz.viz.charts.losses import losses
    from dlviz.viz.charts.matrices import matrices
    from dlviz.viz.charts.memory import memory
    from dlviz.viz.charts.memory_bars import memory_bars
    from dlviz.viz.charts.memory_by_kind import memory_by_kind
    from dlviz.viz.charts.memory_map import memory_map
    from dlviz.viz.charts.mesh import mesh
    from dlviz.viz.charts.messages import messages
    from dlviz.viz.charts.order import order
    from dlviz.viz.charts.participation import participation
    from dlviz.viz.charts.paths import paths
    from dlviz.viz.charts.placement import placement
    from dlviz.viz.charts.plans import plans
    from dlviz.viz.charts.predicted import predicted
    from dlviz.viz.charts.probabilities import probabilities
    from dlviz.viz.charts.quantiser import quantiser
    from dlviz.viz.charts.scaling import scaling
    from dlviz.viz.charts.spectrum import spectrum
    from dlviz.viz.charts.spread import spread
    from dlviz.viz.charts.stability import stability
    from dlviz.viz.charts.staleness import staleness
    from dlviz.viz.charts.stationary import stationary
    from dlviz.viz.charts.storage import storage
    from dlviz.viz.charts.timeline import timeline
    from dlviz.viz.charts.timelines import timelines
    from dlviz.viz.charts.traffic import traffic
    from dlviz.viz.tables import (
        bubble_table,
        collectives_table,
        compare_table,
        compared_table,
        memory_table,
        spectrum_table,
        staleness_table,
        timeline_table,
        traffic_table,
    )

__all__ = [
    "Frame",
    "axis_bytes",
    "bars",
    "best_so_far",
    "breakdown",
    "bubble",
    "bubble_table",
    "cells",
    "collectives_table",
    "compare",
    "compare_table",
    "compared_table",
    "compression_map",
    "cost_map",
    "costs",
    "crossovers",
    "curve",
    "cut_map",
    "decode",
    "density",
    "disagreement",
    "drift",
    "encode",
    "images",
    "layer_path",
    "losses",
    "matrices",
    "memory",
    "memory_bars",
    "memory_by_kind",
    "memory_map",
    "memory_table",
    "mesh",
    "message_frames",
    "messages",
    "order",
    "participation",
    "paths",
    "placement",
    "plans",
    "predicted",
    "probabilities",
    "quantiser",
    "scaling",
    "spectrum",
    "spectrum_table",
    "spread",
    "stability",
    "staleness",
    "staleness_table",
    "stationary",
    "storage",
    "timeline",
    "timeline_table",
    "timelines",
    "traffic",
    "traffic_table",
    "waited_for",
]


def __getattr__(name: str) -> Any:
    if name == "print":
        return import_module("dlviz.viz.print")
    if name not in __all__:
        raise AttributeError(f"module 'dlviz.viz' has no attribute {name!r}")
    module = "tables" if name.endswith("_table") else f"charts.{name}"
    return getattr(import_module(f"dlviz.viz.{module}"), name)


def __dir__() -> list[str]:
    return [*__all__, "print"]
