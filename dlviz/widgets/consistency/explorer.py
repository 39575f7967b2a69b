"""ConsistencyExplorer: who waits for whom under a server, and without one; how old gradients are.

    method and its own knob, workers, how slow
        the timeline of server and workers           predicted, and measured below it
        pushes and pulls, message by message         each worker: gradients/s, staleness, waiting
        Run it: the same on real ranks, paced

What is predicted is played by dlviz/sim/strategies.py. The arithmetic is in strategies.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dlviz.sim.strategies import SERVED
from dlviz.trace import Trace
from dlviz.widgets.consistency.strategies import (
    KNOBS,
    METHODS,
    SHOWN,
    SLOW,
    SLOWED,
    WORKERS,
    check,
    options_of,
    played,
    run,
    side,
)
from dlviz.widgets.control import Choice, Slider
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDER = 0.03  # of a figure's width: so much longer are workers' names than ranks'


class ConsistencyExplorer(Recording):
    """Choose how workers share a model, how many there are and how slow one is; see who waits for
    whom and how stale gradients are; run it.

    `method` is one of "sync_server", "async_server", "stale_synchronous", "easgd", "local_sgd" and
    "gossip", `workers` their number, without the server. `slow`, 1 to 5, is how many times as long
    the last worker takes (`slowed="one"`), or one operation in ten of any worker
    (`slowed="chance"`). `backups`, `bound`, `form` and `alpha`, `every` and `topology` are the
    methods' own. All may be set later; an invalid value shows an error in the widget and changes
    nothing. `run()` does what the button does; the last runs are shown again where their controls
    are chosen, and on a saved page. `trace` is what is predicted, `measured` the Trace of the last
    run, or None. Raises ValueError for an invalid first value.
    """

    module = "consistency/index"
    controls = (
        (
            Choice("method", "method", "async_server", options=METHODS),
            *(knob for knobs in KNOBS.values() for knob in knobs),
        ),
        Slider("workers", "workers", 4, values=range(WORKERS[0], WORKERS[1] + 1),
               says="{} workers"),
        (
            Choice("slowed", "slow", "one", options=SLOWED),
            Slider("slow", "takes", 3.0, values=SLOW, says="{} times as long", short="{}×"),
        ),
    )  # fmt: skip
    former = {"way": "slowed"}

    def begin(self) -> None:
        super().begin()
        self._trace = played(self._now)

    @property
    def trace(self) -> Trace:
        return self._trace

    def check(self, values: dict[str, Any]) -> None:
        check(values)

    def moved(self, values: dict[str, Any]) -> None:
        super().moved(values)
        self._trace = played(values)

    def choice(self, values: dict[str, Any]) -> dict[str, Any]:
        return chosen(values)

    def work(self) -> Callable[[Progress], Found]:
        return self.recording(dict(self._now), run)

    def label(self, values: dict[str, Any]) -> str:
        own = [f"{knob.label} {values[knob.name]}" for knob in KNOBS[values["method"]]]
        slow, workers = values["slow"], values["workers"]
        slowed = [f"{slow:g}× as long: {SLOWED[values['slowed']]}"] if slow > 1 else []
        many = f"{workers} worker{'s' * (workers > 1)}"
        return ", ".join([METHODS[values["method"]], *own, many, *slowed])

    def pages(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The runs, each with its prediction."""
        for one in self._runs:
            values = one["controls"]
            predicted = side(played(values), values, "device")
            yield values, {"predicted": predicted, "run": one["run"]}

    def picture(self) -> Figure:
        """The timeline."""
        from dlviz.viz.print import timeline

        figure = timeline(self._trace, theme=self.paper, title=self._title())
        axes, server = figure.axes[0], "rank 0" if self._now["method"] in SERVED else ""
        names = [name.get_text() for name in axes.get_yticklabels()]
        axes.set_yticklabels(
            ["server" if name == server else name.replace("rank", "worker") for name in names]
        )
        left, bottom, width, height = axes.get_position().bounds
        axes.set_position((left + WIDER, bottom, width - WIDER, height))
        return figure

    def _title(self) -> str:
        workers = self._now["workers"]
        return f"{METHODS[self._now['method']]}, {workers} worker{'s' * (workers > 1)}"

    def payload(self) -> dict[str, Any]:
        now = self._now
        return {
            **super().payload(),
            "title": "Who waits for whom?",
            "details": DETAILS,
            "shown": SHOWN,
            "predicted": side(self._trace, now, "device"),
            "run": self._run or self.run_of(now).get("run"),
        }


def chosen(values: dict[str, Any]) -> dict[str, Any]:
    """The controls that matter to the chosen method."""
    own = {name: values[name] for name in ("method", "workers", "slow")}
    slowed = values["slowed"] if values["slow"] > 1 else ""
    return {**own, "slowed": slowed, **options_of(values)}


DETAILS = [
    "A gradient takes 60 ms, a message 0.5 ms and 1 µs more for each KB; the server takes one "
    "message at a time. Each worker computes 16 gradients.",
    "By chance, each forward and each backward of a layer is slow once in ten times, whoever "
    "computes it.",
    "Gradients per second, staleness and waiting are those of the time in which all workers are at "
    "work: from the end of the slowest first step to the end of the fastest worker's last.",
    "The staleness of a gradient is the number of updates between the weights that it was computed "
    "with and its own update.",
    "EASGD is stable below its bound on a loss of curvature 1.",
    "The timeline and the moments of a run are by its device clock, its figures by the wall clock.",
]
