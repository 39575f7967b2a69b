"""MeshExplorer: which of the three axes of a mesh belongs on the fast links.

    an axis is dragged into a node, or onto the links between nodes
        where each rank is in the mesh, and the groups of an axis
        bytes of each axis inside nodes and between them, seconds; measured below predicted
        Run it: a Transformer on these ranks, paced

All six placements are shown together, at the chosen speed of the slow link, and at the other speeds
once the reader pauses. Prices and runs are in run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.widgets.control import Choice, Setting, Slider
from dlviz.widgets.mesh.run import (
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
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.view import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = ("dp", "pp", "tp", "nodes")


class MeshExplorer(Recording):
    """Choose how long the data-parallel, pipeline and tensor-parallel axes are and which of them
    lies inside a node; see the groups of each, what it sends over fast and slow links and what a
    step takes; run it.

    `dp`, `pp` and `tp` are 1, 2 or 4, of 8 ranks at most; `order` names the axes, the one whose
    ranks are neighbours last. `nodes`, 1, 2 or 4, share the ranks, and the links between them are
    `slower` times as slow as those inside: 1, 2, 5, 10 or 20. All may be set later; an invalid
    value shows an error in the widget and changes nothing. `run()` does what the button does; the
    last runs are shown again where their controls are chosen, and on a saved page. `measured` is
    the Trace of the last run, or None. Raises ValueError for an invalid first value.
    """

    module = "mesh/index"
    controls = (
        (*(Choice(axis, axis, 2, options=LENGTHS) for axis in ("dp", "pp", "tp")),),
        (
            Choice("nodes", "nodes", 2, options=NODES),
            Slider("slower", "between them", 10, values=SLOWER,
                   says="{} times as slow as inside", short="{}× slower"),
        ),
        Setting("order", "order", "dp,pp,tp"),
    )  # fmt: skip

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

    def work(self) -> Callable[[Progress], Found]:
        return self.recording(dict(self._now), run)

    def label(self, values: dict[str, Any]) -> str:
        axes = ", ".join(f"{axis} {values[axis]}" for axis in values["order"].split(","))
        nodes, slower = values["nodes"], values["slower"]
        return f"{axes}; {nodes} node{'s' * (nodes > 1)}, {slower:g}×"

    def pages(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The placements of the chosen controls, and of the runs."""
        for shape in {tuple(placed_by(one).items()) for one in [self._now, *self.recorded]}:
            yield dict(shape), {"placements": placements(**dict(shape)), "run": None}

    def picture(self) -> Figure:
        """What a step takes with each axis between nodes, over the speed of the slow link."""
        from dlviz.viz.print import curve

        shape = placed_by(self._now)
        lines = {
            f"{outer} between": [predicted(order, **shape, slower=slow).total for slow in SLOWER]
            for outer, order in {"dp": "dp,pp,tp", "pp": "pp,dp,tp", "tp": "tp,pp,dp"}.items()
        }
        title = f"A step of {ranks_of(self._now)} ranks on {shape['nodes']} nodes"
        labels = ("times as slow between nodes", "seconds")
        return curve(
            lines, x=SLOWER, title=title, xlabel=labels[0], ylabel=labels[1], theme=self.paper
        )

    def payload(self) -> dict[str, Any]:
        now = self._now
        speeds = SLOWER if self._settled else (now["slower"],)
        return {
            **super().payload(),
            "title": "Which axis belongs on the fast links?",
            "details": DETAILS,
            "axes": [[axis, TITLES[axis]] for axis in AXES],
            "slower": SLOWER,
            "owners": [styled(palette.rank_style(rank)) for rank in range(RANKS)],
            "hues": {axis: hue for axis, (_, hue) in palette.AXES.items()},
            "placements": placements(**placed_by(now), slower=speeds),
            "run": self._run if self._run and "total" not in self._run else None,
            "runs": self._runs,
        }


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
    "axis sending together. A step takes less than the sum where stages work side by side, and "
    "more where a stage waits.",
    "A run is held to the same machine. Its bytes are those of the Trace's messages in the last "
    "step, its seconds those from the end of a step to the end of the next, by the device clock. "
    "The prediction leaves out what norms and lookups take.",
]
