"""FederatedExplorer: what a round of federated averaging costs, whom it hears, and who is trusted.

    rounds | data and time | trust      three sliders each: C E B, α deadline slow, σ S attackers
        accuracy per round, per byte, per second or over ε, of the last runs
        each client: its digits by label, its seconds, what the server saw of it, its rounds
        Run it: the digits, on a server and the clients

The predictions are in prediction.py, the run in run.py, and the runs shown before the reader's
first in recorded.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.widgets.control import Choice, Slider
from dlviz.widgets.federated.prediction import (
    ATTACKS,
    BANDWIDTH,
    FACTOR,
    FIRST,
    KNOBS,
    LATENCY,
    METHODS,
    PARAMETERS,
    STEP,
    Values,
    attackers,
    check,
    chosen,
    names,
    predicted,
)
from dlviz.widgets.federated.recorded import recorded
from dlviz.widgets.federated.run import FATES, LR, PARTS, run
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def knob(name: str, label: str, panel: str, says: str, **words: Any) -> Slider:
    """The slider of a control."""
    return Slider(name, label, FIRST[name], values=KNOBS[name], panel=panel, says=says, **words)


def choice(name: str, label: str, options: dict[Any, str], panel: str = "") -> Choice:
    return Choice(name, label, FIRST[name], options=options, panel=panel)


class FederatedExplorer(Recording):
    """Choose whom a round asks and what it has them do, whose data differ and who is slow, who is
    trusted; see what a round costs; run it, and lay runs over each other.

    `clients` is 10 or 100, `rounds` how many are run, `fraction` is C, `epochs` E, `batch` B (None:
    the whole data), `bits` of an update's values 32 or 16; `alpha` Dirichlet's, `deadline` in s
    (None: all are awaited), `slow` the share of slow clients; `sigma` the noise on the sum in units
    of `clip`, S (None: updates are not clipped), `attackers` the share of clients that do what
    `attack` says, `method` how updates are combined, `secure` whether under secure aggregation. All
    may be set later; a value that is invalid, or does not go with the others, shows an error in the
    widget and changes nothing. `run()` does what the button does. `runs` are the last eight, each a
    dict with `controls`, `accuracy`, `nbytes`, `seconds` and `epsilon` after each round and `fates`
    (clients, rounds); they replay on a saved page. `examples` says whether the recorded runs are
    drawn too, as they are before the first one; it may be set. `measured` is the Trace of the last
    run, or None. Raises ValueError for an invalid first value.
    """

    module = "federated/index"
    controls = (
        choice("clients", "clients", {many: str(many) for many in KNOBS["clients"]}),
        choice("rounds", "rounds", {many: str(many) for many in KNOBS["rounds"]}),
        knob("fraction", "C, asked", "rounds", "{} of the clients", unit="percent"),
        knob("epochs", "E, epochs", "rounds", "{} local epochs"),
        knob("batch", "B, batch", "rounds", "batches of {}",
             words={None: ("the whole data as one batch", "∞")}),
        choice("bits", "updates of", {32: "32 bits", 16: "16 bits"}, "rounds"),
        knob("alpha", "α, alike", "data", "Dirichlet with α = {}"),
        knob("deadline", "deadline", "data", "{} seconds", short="{} s",
             words={None: ("none", "none")}),
        knob("slow", "slow clients", "data", "{} of the clients", unit="percent"),
        knob("sigma", "σ, noise", "trust", "noise of {} S on the sum",
             words={0.0: ("no noise", "0")}),
        knob("clip", "S, clip", "trust", "clipped to a norm of {}",
             words={None: ("not clipped", "none")}),
        knob("attackers", "attackers", "trust", "{} of the clients", unit="percent"),
        choice("attack", "they", ATTACKS, "trust"),
        choice("method", "combined by", METHODS, "trust"),
        choice("secure", "secure aggregation", {False: "off", True: "on"}, "trust"),
    )  # fmt: skip
    clock = "clients' times modelled"

    examples = traitlets.Bool(True).tag(sync=True)

    def __init__(self, *given: Any, theme: str = "auto", **values: Any):
        super().__init__(*given, theme=theme, **values)
        self.observe(lambda change: self.show(), "examples")

    def begin(self) -> None:
        super().begin()
        self._ended = 0  # runs so far

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [*self._runs]

    @property
    def shown(self) -> list[dict[str, Any]]:
        """The runs that are drawn, the recorded ones behind the reader's."""
        made = recorded()["runs"] if self.examples else []
        drawn = [{**palette.stroke(at), **one} for at, one in enumerate(made, self._ended)]
        return [*self._runs, *({"recorded": True, **one} for one in drawn)]

    def check(self, values: Values) -> None:
        check(values)

    def choice(self, values: Values) -> Values:
        return chosen(values)

    def work(self) -> Callable[[Progress], Found]:
        return self.recording(dict(self._now), run)

    def record(self, values: Values, found: dict[str, Any], trace: Trace) -> dict[str, Any]:
        self._ended += 1
        if self._ended == 1:
            self.examples = False  # the reader has one to look at
        return {"controls": values, **palette.stroke(self._ended - 1), "recorded": False, **found}

    def pages(self) -> Iterator[tuple[Values, dict[str, Any]]]:
        """The runs, and what was predicted of each."""
        for place, one in enumerate(self.shown):
            yield one["controls"], {"predicted": predicted(one["controls"]), "current": place}

    def picture(self) -> Figure:
        """Accuracy of the runs."""
        from dlviz.viz.print import curve

        return curve(
            {one["name"]: [100 * score for score in one["accuracy"]] for one in self.named()},
            title="Test digits recognised" + self.setting(),
            xlabel="round (0 is the first)",
            ylabel="test digits recognised (%)",
            theme=self.paper,
        )

    def setting(self) -> str:
        """What the runs that are drawn are: recorded, or one of the reader's with its rule."""
        if self.examples or len(self.shown) != 1:
            return ", in recorded runs" * self.examples
        now = self.shown[0]["controls"]
        attack = f", {attackers(now)} of {now['clients']} clients attack" * bool(attackers(now))
        return f": {METHODS[now['method']]}, C = {now['fraction']:g}{attack}"

    def named(self) -> list[dict[str, Any]]:
        """The runs that are drawn, each with its name."""
        shown = self.shown
        summary = names([one["controls"] for one in shown])
        return [{**one, "name": name} for one, name in zip(shown, summary, strict=True)]

    def payload(self) -> dict[str, Any]:
        now = chosen(self._now)
        runs = self.named()
        own = [chosen(one["controls"]) for one in runs]
        failed = self._run if self._run and "accuracy" not in self._run else None
        return {
            "title": "What does a round cost?",
            "details": [*DETAILS, f"Recorded runs were made by {recorded()['made']}."],
            "fates": [[fate, *LOOKS[fate]] for fate in FATES],
            "hues": HUES,
            "parts": PARTS,
            "predicted": predicted(self._now),
            "examples": self.examples,
            "runs": runs,
            "current": own.index(now) if now in own else -1,
            "run": failed,
        }


LOOKS = {  # of a fate: its name for readers, its hue
    "answered": ("in the new weights", palette.FATES["answered"][2]),
    "late": ("late", palette.FATES["late"][2]),
    "busy": ("busy with a round before", palette.ORANGE),
    "rejected": ("rejected, or no data", palette.FATES["rejected"][2]),
    "lost": ("lost", palette.OTHER.color),
}
HUES = {"label": palette.SKY, "seconds": palette.GREEN, "late": palette.VERMILION,
        "saw": palette.PURPLE}  # fmt: skip
DETAILS = [
    f"An MLP 64-32-10, {PARAMETERS:,} weights of float32, on the 1,437 training digits, tested on "
    f"360 others; rate {LR:g}, seed 0. Rank 0 is the server, all clients live on rank 1: their "
    "training is real, their times are modelled, on every axis of seconds.",
    f"A local step takes {1e3 * STEP:g} ms, {FACTOR:g} times as long on a slow client; a message "
    f"{1e3 * LATENCY:g} ms, and {1e6 / BANDWIDTH:g} ms more for each KB.",
    "The slow clients are the last, the attackers the first. A client that has not answered by the "
    "deadline is late; its update is discarded when it arrives, and until then the client is busy.",
    "With noise clients are drawn by Poisson, each on its own with probability C, updates count "
    "the same and are divided by C·N; only then is there an ε. δ = 1/N², the unit is a client. Ten "
    "clients hide nobody at a noise they can tolerate: choose 100.",
    "The server clips what it receives. Under secure aggregation it cannot: honest clients clip "
    "their own, attackers do not. Krum, trimmed mean and multi-Krum know how many attackers "
    "there are.",
    "Under secure aggregation the update of every round is the sum that its protocol gives. Each "
    "client has keys, shares and masks of its own, all in the one process of the clients; the "
    "server's process gets masked residues and that sum. Bytes are counted from the messages. "
    "Phones that trust each other as little as the server need a process each: "
    "train(secure=Secure(...)) on a rank more than there are clients.",
]
