"""PlacementExplorer: which device runs which group of operators.

    graph, devices, what a message takes
        the graph in the colours of its devices: a click gives a group to the next one
        the timeline of the placement beside it, with lower bounds and the best known
        what each method finds, and promised; what a network learns
        Run it: real ranks run the placement, paced; measured beside played

The arithmetic is in found.py, the run in run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlviz.machine.topology import require
from dlviz.viz import palette
from dlviz.viz.operator_graph import layout
from dlviz.viz.words import text
from dlviz.widgets.control import Choice, Setting, Slider, whole
from dlviz.widgets.placement import found
from dlviz.widgets.placement.run import REPEATS, UNIT, run
from dlviz.widgets.recording import Recording
from dlviz.widgets.requests import Answer
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.view import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8  # devices


class PlacementExplorer(Recording):
    """Give each group of a graph of operators to a device; see how long the placement takes, what
    no placement beats and what each method finds; let a network learn one; run it.

    `graph` is "lab", "branches" or "recurrent", `devices` their number, `message` the seconds that
    a value takes to another device. `placement` has the device of each group, as a list or as text
    ("0,1,0"); another graph begins with all groups on device 0. All may be set later; an invalid
    value shows an error in the widget and changes nothing. `run()` does what the button does; the
    last runs are shown again where their controls are chosen. `measured` is the Trace of the last
    run, or None. Raises ValueError for an invalid first value.
    """

    module = "placement/index"
    controls = (
        Choice("graph", "graph", "lab", keys=("g", "next graph"),
               options={name: words for name, (words, _) in found.GRAPHS.items()}),
        Slider("devices", "devices", 4, values=range(1, MOST + 1), says="{} devices",
               keys=("↑ ↓", "more devices, fewer")),
        Slider("message", "a message takes", 1.0, values=(0, 0.25, 0.5, 1, 2, 3, 4, 5),
               says="{} seconds", typed="s"),
        Setting("placement", "placement", None),
    )  # fmt: skip

    graph: Any
    devices: Any
    message: Any
    placement: Any

    def taken(self, values: dict[str, Any]) -> dict[str, Any]:
        placement = values["placement"]
        if placement is None and values["graph"] in found.GRAPHS:
            placement = alone(values["graph"])
        return {**values, "placement": as_text(placement)}

    def begin(self) -> None:
        super().begin()
        self._settled = False
        self._lessons: dict[Any, dict[str, Any]] = {}

    def check(self, values: dict[str, Any]) -> None:
        whole("devices", values["devices"], 1, MOST)
        require("the link", "message", values["message"], zero=True, infinite=False)
        found.trace_of(values)

    def moved(self, values: dict[str, Any]) -> None:
        self._settled = self._settled and self._where(values) == self._where(self._now)
        self._now = values

    def settle(self) -> None:
        """Let the methods search that play many placements."""
        if not self._settled:
            self._settled = True
            self.show()

    def work(self) -> Callable[[Progress], Found]:
        return self.recording(dict(self._now), run)

    def label(self, values: dict[str, Any]) -> str:
        words = found.GRAPHS[values["graph"]][0]
        return f"{words}, messages of {values['message']:g} s: {values['placement']}"

    def requests(self) -> dict[str, Any]:
        return {**super().requests(), "learn": self.learn}

    def learn(self) -> Answer:
        """Learn a placement for these controls, and show it."""
        with self._lock:
            self._lessons[self._where(self._now)] = found.learned(self._now)
            self.show()

    def _where(self, values: dict[str, Any]) -> Any:
        """All but the placement."""
        return values["graph"], values["devices"], values["message"]

    def _changed(self, change: Any) -> None:
        """A placement of another length begins again on one device; devices that are gone leave
        their groups to the last one."""
        placement = as_text(self.placement)
        if change.name in ("graph", "devices"):
            placement = fitted(self.graph, self.devices, placement, self._now["placement"])
        self.placement = placement
        super()._changed(change)

    def pages(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The runs, and the methods' placements."""
        methods = ({**self._now, "placement": row["placement"]}
                   for row in self._rows(self._now, True))  # fmt: skip
        for one in (*self.recorded, self._now, *methods):
            yield one, self._shown(one, True)

    def payload(self) -> dict[str, Any]:
        return {
            **super().payload(),
            "title": "Which device runs what?",
            "details": DETAILS,
            "ranks": [styled(palette.rank_style(device)) for device in range(MOST)],
            "strokes": [palette.stroke(place) for place in range(2)],
            **self._shown(self._now, self._settled),
            "run": self._run or self.run_of(self._now).get("run"),
        }

    def _rows(self, values: dict[str, Any], settled: bool) -> list[dict[str, Any]]:
        lesson = self._lessons.get(self._where(values))
        return [*found.methods(values, settled), *([lesson["row"]] if lesson else [])]

    def _shown(self, values: dict[str, Any], settled: bool) -> dict[str, Any]:
        """What follows from the controls."""
        graph, rows = found.graph_of(values), self._rows(values, settled)
        played, bounds = found.played(found.trace_of(values)), found.least(values)
        best = min([*rows, {"name": "yours", **played}], key=lambda row: row["seconds"])
        return {
            "groups": [
                {"seconds": seconds, "parents": parents, "at": at}
                for seconds, parents, at in zip(
                    graph.seconds, graph.parents, layout(graph.parents), strict=True
                )
            ],
            "played": played,
            "bounds": bounds,
            "best": {"name": best["name"], "seconds": best["seconds"]},
            "methods": rows,
            "learned": self._lessons.get(self._where(values)),
            "run": self.run_of(values).get("run"),
            "answer": answer(values, played["seconds"], bounds, best),
        }

    def picture(self) -> Figure:
        """The timeline of the placement."""
        from dlviz.viz.print import timeline

        return timeline(found.trace_of(self._now), critical=True, theme=self.paper)


def as_text(placement: Any) -> Any:
    """A list as the control holds it; anything else unchanged, for `check` to refuse."""
    several = isinstance(placement, Sequence) and not isinstance(placement, str)
    return found.written(placement) if several else placement


def fitted(graph: Any, devices: Any, placement: Any, before: str) -> Any:
    """A placement for another graph or other devices; `before` in place of an invalid one."""
    try:
        given = found.devices_in(placement)
    except ValueError:
        given = found.devices_in(before)
    if graph in found.GRAPHS and len(given) != len(found.GRAPHS[graph][1]):
        return alone(graph)
    last = devices - 1 if isinstance(devices, int) and devices > 0 else MOST
    return found.written(min(device, last) for device in given)


def alone(graph: str) -> str:
    """All groups on device 0."""
    return found.written([0] * len(found.GRAPHS[graph][1]))


def answer(
    values: dict[str, Any], seconds: float, bounds: tuple[float, float], best: dict[str, Any]
) -> str:
    """How long the placement takes, beside what no placement beats and the best that is known."""
    path, share = map(text.seconds, bounds)
    known = f"{text.seconds(best['seconds'])}, by {best['name']}"
    if seconds == best["seconds"]:
        known = "this"
    many, every = values["devices"], found.places(values)
    placements = f"{every:,}" if every < 1e9 else f"{every:.2g}"
    return (
        f"The placement takes {text.seconds(seconds)} on {many} device{'s' * (many > 1)}; none of "
        f"{placements} takes less than the critical path, {path}, or work / devices, "
        f"{share}. Best known: {known}."
    )


DETAILS = [
    "A device runs one group at a time, of those that are ready the one with the longest path of "
    "seconds to an end. A value goes once to each other device that needs it; a port sends one "
    "message at a time and takes one at a time, and computing goes on meanwhile.",
    "Placements that differ only by the names of equal devices count once. The lower bounds leave "
    "messages out.",
    "Promised is what a method believed. layers and round robin look at no message; greedy leaves "
    "ports out, heft plans with means. random and moves play "
    f"{found.BUDGET:,} placements each; up to {found.FEW} are all played (exhaustive).",
    f"Run it: {REPEATS} forwards of a net with these groups on real ranks, paced: a second of a "
    f"group or of a message takes {1000 * UNIT:g} ms.",
    f"Learn: REINFORCE on a table of logits, {found.BUDGET:,} placements, one seed, beside random "
    "search of the same budget and seed. One seed proves nothing: the lab compares five.",
]
