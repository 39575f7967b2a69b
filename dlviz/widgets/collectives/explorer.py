"""CollectiveExplorer: what an all-reduce costs by each algorithm, which wins where, how it goes.

    algorithm, ranks, size, alpha, beta, gamma, topology
        seconds over size, one line for each algorithm        ranks x size: who wins
        the messages of the chosen algorithm on the chosen topology, step by step
        Run it: the same on real ranks, paced; measured beside predicted

On a switch the lines are the closed forms of `dlviz.sim.collective_seconds`; on another topology
each is played message by message. The arithmetic is in all_reduce.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.patterns import TITLES
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.scene import Scene
from dlviz.viz.words import text
from dlviz.widgets.background import finish, meanwhile
from dlviz.widgets.collectives.all_reduce import (
    ALGORITHMS,
    COARSE,
    FIELDS,
    NEAR,
    RANKS,
    RUNNABLE,
    SIZES,
    TOPOLOGIES,
    ahead,
    all_ranks,
    check,
    lines_of,
    played,
    prediction,
    rates,
    run,
    winners,
)
from dlviz.widgets.control import Choice, Field, Slider
from dlviz.widgets.explorer import Explorer
from dlviz.widgets.player import player_state
from dlviz.widgets.requests import Answer
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.view import compact, dressed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARED = (  # of networks with links between groups of ranks
    "Messages over the same link cross it one after the other. Where one of them reaches a rank's "
    "port only after a message from nearby, it still needs the port for its whole latency and all "
    "of its bytes: there the line of the hierarchical all-reduce jumps."
)


class CollectiveExplorer(Explorer):
    """Choose an algorithm, ranks, a size and a network; see what an all-reduce costs and how it
    goes; run it.

    `nbytes` is the size of the tensor, `alpha` in s, `beta` and `gamma` in s/byte, `topology` one
    of "switch", "ring", "racks", "tree". All may be set later; an invalid value shows an error in
    the widget and changes nothing. `run()` does what the button does. `measured` is what the last
    run found, in s, or None. Raises ValueError for an invalid first value.
    """

    module = "collectives/index"
    controls = (
        Choice("algorithm", "algorithm", "ring", keys=("a", "next algorithm"),
               options={name: TITLES[name] for name in ALGORITHMS}),
        Choice("topology", "topology", "switch", options=[*TOPOLOGIES]),
        Slider("ranks", "ranks", 4, values=range(RANKS[0], RANKS[1] + 1), says="{} ranks",
               keys=("↑ ↓", "more ranks, fewer")),
        Slider("nbytes", "size", 10**6, values=SIZES, unit="bytes",
               keys=("← →", "smaller, larger")),
        (
            Field("alpha", "α", 10e-6, unit="µs a message", per=1e6, panel="link"),
            Field("beta", "β", 1e-9, unit="ns a byte", per=1e9, panel="link"),
            Field("gamma", "γ", 1e-10, unit="ns a byte added", per=1e9, panel="link"),
        ),
    )  # fmt: skip

    names = ("algorithm", "ranks", "nbytes", "alpha", "beta", "gamma", "topology")

    player = traitlets.Unicode("{}").tag(sync=True)
    maps = traitlets.Unicode("{}").tag(sync=True)

    def __init__(self, *given: Any, theme: str = "auto", **values: Any):
        super().__init__(*given, theme=theme, **values)
        self.player = self._played(self._trace)
        self._look_ahead()

    def begin(self) -> None:
        self._model: dict[str, Any] = {}
        self._link: dict[str, Any] = {}  # of what is sent ahead
        self._ahead: Future[dict[str, Any]] = Future()
        self._maps: dict[str, list[list[int]]] = {}  # of each network on that link
        self._looking = self._look(self._now["topology"])
        self._trace = played(**self._now)

    @property
    def measured(self) -> float | None:
        return self._run["measured"] if self._run and "measured" in self._run else None

    def settle(self) -> None:
        """Show the messages of the present controls, and the fine lines."""
        if self._settled:
            return
        self._settled = True
        self._look_ahead()
        self.show()
        self.player = self._played(played(**self._now))

    def requests(self) -> dict[str, Callable[..., Answer]]:
        return {**super().requests(), "ahead": lambda: self._ahead}

    def work(self) -> Callable[[Progress], Found]:
        return partial(run, **self._now)

    def check(self, values: dict[str, Any]) -> None:
        check(**values)

    def moved(self, values: dict[str, Any]) -> None:
        self._now, self._settled = values, False

    def saved_state(self) -> dict[str, Any]:
        """All that a page without a kernel can show: the messages of every algorithm too, and the
        maps of all networks."""
        self.settle()
        with self._lock:
            finish(self._looking)
        traces = {name: played(**{**self._now, "algorithm": name}) for name in ALGORITHMS}
        players = {name: self._played(trace, name) for name, trace in traces.items()}
        player = players[self._now["algorithm"]]
        return {**super().saved_state(), "player": player, "players": players, "maps": self.maps}

    def picture(self) -> Figure:
        """The lines of all algorithms, and the chosen size."""
        from dlviz.viz.print import costs

        self.settle()
        lines, title = self._model["curves"], self._title()
        return costs(SIZES, lines, at=self._now["nbytes"], theme=self.paper, title=title)

    def _look_ahead(self) -> None:
        """Compute what the front end may ask for next, unless that is known."""
        on = {name: self._now[name] for name in (*FIELDS, "topology")}
        if on == self._link:
            return
        with self._lock:
            self._looking.close()
            self._ahead.cancel()
            if {**on, "topology": ""} != {**self._link, "topology": ""}:
                self._maps = {}
            self._link, self._looking, self._ahead = on, self._look(on["topology"]), Future()
            meanwhile(self._looking, lambda: self._attempt is None, self._lock)

    def _look(self, chosen: str) -> Generator[None, None, None]:
        """Find the lines of all numbers of ranks on the chosen network, and send the map of every
        network, the chosen one's first."""
        link = {name: self._link[name] for name in FIELDS}
        for topology in [chosen, *(name for name in TOPOLOGIES if name != chosen)]:
            if topology != chosen and topology in self._maps:
                continue
            found = yield from all_ranks(**link, topology=topology)
            if topology == chosen:
                ranks = {ranks: ahead(lines) for ranks, lines in found.items()}
                self._ahead.set_result({"ahead": {"link": self._link, "ranks": ranks}})
            self._maps = {**self._maps, topology: winners(found)}
            self.maps = compact({"link": link, "of": self._maps})

    def _played(self, trace: Trace, algorithm: str = "") -> str:
        title = f"{TITLES[algorithm or self._now['algorithm']]}, message by message"
        state = player_state(Scene(trace), title)
        of = text.provenance(trace, "device")  # the controls say that already
        lines = [line for line in state["lines"] if line not in of]
        return compact(dressed(trace, {**state, "lines": lines}))

    def _title(self) -> str:
        size = text.nbytes(self._now["nbytes"])
        return f"All-reduce of {size} on {self._now['ranks']} ranks"

    def payload(self) -> dict[str, Any]:
        """All that the front end draws, except the messages."""
        now = self._now
        link = {name: now[name] for name in ("ranks", *FIELDS, "topology")}
        fine = self._settled or (self._model.get("fine", False) and self._model["link"] == link)
        if (self._model.get("link"), self._model.get("fine")) != (link, fine):
            self._model = {"link": link, "fine": fine, **lines_of(**link, fine=fine)}
        here = {name: prediction(**{**now, "algorithm": name}) for name in ALGORITHMS}
        return {
            "title": "Which all-reduce is cheapest?",
            "details": details(now["topology"]),
            "about": "closed forms" if now["topology"] == "switch" else
                     "simulated" if fine else f"simulated at {len(COARSE)} sizes so far",
            "algorithms": list(ALGORITHMS),
            "names": TITLES,
            "topologies": TOPOLOGIES,
            "limits": {"ranks": RANKS, "run": RUNNABLE},
            "styles": [palette.stroke(i) for i in range(len(ALGORITHMS))],
            "sizes": SIZES,
            **{name: self._model[name] for name in ("curves", "at", "cheapest")},
            "near": NEAR,
            "now": {name: rates(now["ranks"], now["nbytes"], took) for name, took in here.items()},
            "run": self._run,
        }  # fmt: skip


def details(topology: str) -> list[str]:
    """Where the numbers come from, and what the bandwidths are."""
    lines = ["On a switch the times are the closed forms of the alpha-beta-gamma model."]
    if topology != "switch":
        lines = [
            f"Each algorithm is simulated on {TOPOLOGIES[topology]}, message by message.",
            "A message occupies the ports of its sender and its receiver for its latency and for "
            "all of its bytes. Where a larger tensor makes two messages need a port together, one "
            "of them waits for all of the other, so a line may jump there.",
            *([SHARED] if topology in ("racks", "tree") else []),
        ]
    return [
        *lines,
        "Algorithm bandwidth is size / time. Bus bandwidth multiplies it by 2(n−1)/n, the part of "
        "the tensor that each of n ranks has to send at least: an algorithm that sends more shows "
        "a lower bus bandwidth on the same link.",
    ]
