"""MeshExplorer: which of the three axes of a mesh belongs on the fast links.

    an axis is dragged into a node, or onto the links between nodes
        where each rank is in the mesh, and the groups of an axis
        bytes of each axis inside nodes and between them, seconds; measured below predicted
        Run it: a Transformer on these ranks, paced

All six placements are told at once, each at the speed of the slow link that is chosen, and at the
others once the reader pauses. What is priced and run is in mesh_run.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.trace import Trace
from dlviz.viz import palette, text
from dlviz.widgets.mesh_run import (
    AXES,
    BATCH,
    DEVICE,
    HEADS,
    INSIDE,
    LENGTHS,
    MICROBATCHES,
    NODES,
    RANKS,
    SIZES,
    SLOWER,
    TITLES,
    check,
    placements,
    predicted,
    ranks_of,
    run,
)
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Tell
from dlviz.widgets.view import compact, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = ("dp", "pp", "tp", "nodes")


class MeshExplorer(Recording):
    """Choose how long the data-parallel, pipeline and tensor-parallel axes are and which of them
    lies inside a node; see the groups of each, what it sends over fast and slow links and what a
    step takes; run it.

    `dp`, `pp` and `tp` are 1, 2 or 4, of 8 ranks at most; `order` names the axes, the one whose
    ranks are neighbours last. `nodes`, 1, 2 or 4, share the ranks, and the links between them are
    `slower` times as slow as those inside: 1, 2, 5, 10 or 20. All may be set later on; a value that
    cannot be is told in the widget and changes nothing else. `run()` does what the button does; the
    last runs are shown again where their controls are chosen, and on a saved page. `measured` is
    the Trace of the last run, or None. Raises ValueError where a first value cannot be.
    """

    module = "mesh/index"
    controls = ("order", *SHAPE, "slower")

    order = traitlets.Any("dp,pp,tp").tag(sync=True)
    dp = traitlets.Any(2).tag(sync=True)
    pp = traitlets.Any(2).tag(sync=True)
    tp = traitlets.Any(2).tag(sync=True)
    nodes = traitlets.Any(2).tag(sync=True)
    slower = traitlets.Any(10).tag(sync=True)

    def __init__(
        self,
        dp: int = 2,
        pp: int = 2,
        tp: int = 2,
        nodes: int = 2,
        slower: int = 10,
        order: str = "dp,pp,tp",
        *,
        theme: str = "auto",
    ):
        values = (order, dp, pp, tp, nodes, slower)
        now: dict[str, Any] = dict(zip(self.controls, values, strict=True))
        check(now)
        super().__init__(Trace(), now, theme)

    def check(self, values: dict[str, Any]) -> None:
        check(values)

    def moved(self, values: dict[str, Any]) -> None:
        self._settled &= placed_by(values) == placed_by(self._now)
        super().moved(values)

    def settle(self) -> None:
        """Show the other speeds of the slow link, which a control does not wait for."""
        if not self._settled:
            self._settled = True
            self.show()

    def work(self) -> Callable[[Tell], Found]:
        values = dict(self._now)
        return self.recording(values, partial(run, values))

    def kept(self) -> dict[str, Any]:
        """All that a page without a kernel can show: the placements of the runs too."""
        self.settle()
        every = {key(one): one for one in [self._now, *self.recorded]}
        shapes = {name: placements(**placed_by(values)) for name, values in every.items()}
        return {**super().kept(), "shapes": compact(shapes)}

    def picture(self) -> Figure:
        """What a step takes with each axis between nodes, over the speed of the slow link."""
        from dlviz.viz.print import curve

        shape = placed_by(self._now)
        lines = {
            f"{outer} between": [predicted(order, **shape, slower=slow).total for slow in SLOWER]
            for outer, order in {"dp": "dp,pp,tp", "pp": "pp,dp,tp", "tp": "tp,pp,dp"}.items()
        }
        theme = "dark" if self.theme == "dark" else "light"
        title = f"A step of {ranks_of(self._now)} ranks on {shape['nodes']} nodes"
        labels = ("times as slow between nodes", "seconds")
        return curve(lines, x=SLOWER, title=title, xlabel=labels[0], ylabel=labels[1], theme=theme)

    def told(self) -> dict[str, Any]:
        now = self._now
        speeds = SLOWER if self._settled else (now["slower"],)
        return {
            "title": "Which axis belongs on the fast links?",
            "details": DETAILS,
            "axes": [[axis, TITLES[axis]] for axis in AXES],
            "limits": {"lengths": LENGTHS, "nodes": NODES, "slower": SLOWER},
            "owners": [styled(palette.rank_style(rank)) for rank in range(RANKS)],
            "hues": {axis: hue for axis, (_, hue) in palette.AXES.items()},
            "placements": placements(**placed_by(now), slower=speeds),
            "run": self._run if self._run and "total" not in self._run else None,
            "runs": self._runs,
            "ran": self._ran,
        }


def key(values: dict[str, Any]) -> str:
    """The name of what a saved page shows of these lengths."""
    return " ".join(str(values[name]) for name in SHAPE)


def placed_by(values: dict[str, Any]) -> dict[str, Any]:
    """What all placements depend on."""
    return {name: values[name] for name in SHAPE}


DETAILS = [
    "The model: a Transformer of {layers} layers, hidden size {hidden}, {heads} heads, {vocabulary}"
    " tokens and sequences of {sequence}; float32. A step: {batch} sequences, {microbatches} "
    "microbatches a replica, 1F1B.".format(
        **SIZES, heads=HEADS, batch=BATCH, microbatches=MICROBATCHES
    ),
    f"A rank computes {DEVICE.flops / 1e9:g} GFLOP/s. Inside a node a message takes "
    f"{1e3 * INSIDE.latency:g} ms and its bytes at {text.nbytes(int(INSIDE.bandwidth))}/s. The "
    "ranks of a node share one link out of it.",
    "The seconds of an axis are those of its calls, one after the other, with all groups of the "
    "axis under way at once. A step takes less than the sum where stages work side by side, and "
    "more where a stage waits.",
    "A run is held to the same machine. Its bytes are those of the Trace's messages in the last "
    "step, its seconds those from the end of a step to the end of the next, by the device clock. "
    "The prediction leaves out what norms and lookups take.",
]
