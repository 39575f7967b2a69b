"""CompressionExplorer: which code of the gradients is fastest on a link, and how much it loses.

    method, its option, how codes meet, values, ranks, the link
        seconds over bandwidth and over ranks, a line a method
        bits a value, bytes that a rank sends, seconds, variance
        Run it: the exchange on real ranks, paced; measured below predicted

The arithmetic is in methods.py, the run in run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlviz.machine.topology import require
from dlviz.sim.compression import HOW
from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.widgets.compression.methods import (
    BITS,
    DENSE,
    METHODS,
    RANKS,
    SHARES,
    row,
    seconds,
    title,
)
from dlviz.widgets.compression.run import run
from dlviz.widgets.control import Choice, Field, Slider, one_of, whole
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 64  # ranks
RUN = 8  # ranks of a run
LONGEST = 1.0  # s: what an exchange of a run may take
FEWEST, LARGEST = 1_000, 100_000_000  # values
SIZES = sorted({round(10 ** (step / 4)) for step in range(12, 33)} | {26_122})
BANDWIDTHS = [float(f"{10 ** (step / 4):.2g}") for step in range(24, 45)]  # bytes/s, to 100 GB/s
ACROSS = {"bandwidth": BANDWIDTHS, "ranks": range(2, MOST + 1)}


class CompressionExplorer(Recording):
    """Choose a code for the gradients, how many ranks exchange it and their link; see where it is
    faster than a dense ring all-reduce, and how much it loses; run it.

    `method` is "dense", "fp16", "bf16", "qsgd" (of `bits`), "one_bit", "topk" (of `share`),
    "topk_qsgd" or "power" (of `rank`); `how` its codes meet "all_gather", "all_reduce" or
    "reduce_scatter". `n` are the values, `alpha` is in s a message, `bandwidth` in bytes/s. All may
    be set later; an invalid value shows an error in the widget and changes nothing. `run()` does
    what the button does; the last runs are shown again where their controls are chosen. `measured`
    is the Trace of the last run, or None. Raises ValueError for an invalid first value.
    """

    module = "compression/index"
    controls = (
        (
            Choice("method", "method", "one_bit", keys=("m", "next method"),
                   options={name: one.title for name, one in METHODS.items()}),
            Choice("how", "codes meet by", "all_gather"),
            Slider("bits", "bits", 4, values=BITS, says="{} bits", where=("method", "qsgd")),
            Slider("share", "share", 0.01, values=SHARES, where=("method", "topk"),
                   words={one: (f"{100 * one:.3g} %", f"{100 * one:.3g} %") for one in SHARES}),
            Slider("rank", "rank", 1, values=RANKS, where=("method", "power")),
        ),
        Slider("n", "gradients", 26_122, values=SIZES, typed="values"),
        Slider("ranks", "ranks", 4, values=range(1, MOST + 1), says="{} ranks",
               keys=("↑ ↓", "more ranks, fewer")),
        Field("alpha", "α", 5e-4, unit="ms a message", per=1e3),
        Slider("bandwidth", "bandwidth", 1e7, values=BANDWIDTHS, unit="bytes",
               says="{} a second", short="{}/s", keys=("← →", "a slower, a faster link")),
    )  # fmt: skip

    method: Any
    how: Any

    def described(self) -> list[list[dict[str, Any]]]:
        return self._offered(self._now["method"])

    def _offered(self, name: str) -> list[list[dict[str, Any]]]:
        """The inputs, where codes can only meet as this method allows."""
        (method, how, *options), *others = super().described()
        allowed = [[one, HOW[one]] for one in METHODS[name].how]
        return [[method, {**how, "options": allowed}, *options], *others]

    def check(self, values: dict[str, Any]) -> None:
        method, how = values["method"], values["how"]
        one_of("how", how, HOW)
        one_of("share", values["share"], SHARES)
        whole("bits", values["bits"], BITS[0], BITS[-1])
        whole("rank", values["rank"], RANKS[0], RANKS[-1])
        whole("n", values["n"], FEWEST, LARGEST, "gradients")
        whole("ranks", values["ranks"], 1, MOST)
        require("the link", "alpha", values["alpha"], zero=True, infinite=False)
        require("the link", "bandwidth", values["bandwidth"], zero=False, infinite=False)
        allowed = METHODS[method].how
        if how not in allowed:
            cause = "can only be summed" if len(allowed) == 1 else "cannot be summed"
            raise ValueError(f"how={how!r}: codes of {method} {cause}. Use {' or '.join(allowed)}.")

    def _changed(self, change: Any) -> None:
        """A method whose codes cannot meet as is chosen sets how they do."""
        method = METHODS.get(self.method) if change.name == "method" else None
        if method and self.how not in method.how:
            self.how = method.how[0]
        super()._changed(change)

    def work(self) -> Callable[[Progress], Found]:
        long = too_long(self._now)
        if long:
            raise ValueError(long)
        return self.recording(dict(self._now), run)

    def choice(self, values: dict[str, Any]) -> Any:
        options = {one.option for one in METHODS.values()} - {METHODS[values["method"]].option}
        return {name: value for name, value in values.items() if name not in options}

    def label(self, values: dict[str, Any]) -> str:
        rate = text.nbytes(int(values["bandwidth"]))
        return f"{title(values['method'], values)}, {values['ranks']} ranks, {rate}/s"

    def pages(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The runs, and what was chosen."""
        for one in (*self.recorded, self._now):
            yield one, {**self._shown(one), "form": self._offered(one["method"])}

    def payload(self) -> dict[str, Any]:
        return {
            **super().payload(),
            "title": "Which code of the gradients is fastest?",
            "details": DETAILS,
            "hows": HOW,
            "strokes": [palette.stroke(place) for place in range(len(METHODS))],
            **self._shown(self._now),
            "run": self._run or self.run_of(self._now).get("run"),
        }

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        """What follows from the controls."""
        rows = [row(name, values) for name in METHODS]
        return {
            "rows": rows,
            "lines": {name: lines(values, name, across) for name, across in ACROSS.items()},
            "answer": answer(rows),
            "long": too_long(values),
            "run": self.run_of(values).get("run"),
        }

    def picture(self) -> Figure:
        """Seconds of each method over bandwidth."""
        from dlviz.viz.print import curve

        drawn = lines(self._now, "bandwidth", BANDWIDTHS)["y"]
        return curve(
            {title(name, self._now): line for name, line in drawn.items()}, log=True, log_x=True,
            x=[rate / 1e6 for rate in BANDWIDTHS], xlabel="MB/s", ylabel="seconds",
            title=f"An exchange of {self._now['n']:,} gradients", theme=self.paper,
        )  # fmt: skip


def lines(values: dict[str, Any], control: str, across: Sequence[float]) -> dict[str, Any]:
    """Seconds of each method over a control."""
    found = {
        name: [float(f"{seconds(name, {**values, control: value}):.4g}") for value in across]
        for name in METHODS
    }
    every = [value for line in found.values() for value in line]
    return {"x": [*across], "y": found, "ends": [min(every), max(every)]}


def answer(rows: list[dict[str, Any]]) -> str:
    """Which method is fastest here."""
    dense = rows[0]["seconds"]
    best = min(rows, key=lambda one: one["seconds"])
    if not rows[0]["sent"]:
        return "One rank sends nothing."
    if best["name"] == DENSE:
        return f"On this link nothing is faster than the dense ring: {text.seconds(dense)}."
    return (
        f"On this link {best['title']} is fastest: {text.seconds(best['seconds'])}, the dense ring "
        f"{text.seconds(dense)}, {dense / best['seconds']:.3g} times as long."
    )


def too_long(values: dict[str, Any]) -> str:
    """Why an exchange cannot be run here, or ""."""
    if values["ranks"] > RUN:
        return f"{RUN} ranks can be run here: choose as many, or fewer."
    took = seconds(values["method"], values)
    if took > LONGEST:
        return (
            f"An exchange would take {text.seconds(took)}, and {text.seconds(LONGEST)} can be run "
            "here: choose fewer gradients or a faster link."
        )
    return ""


DETAILS = [
    "Each rank has as many gradients, and all need their sum. Dense: a ring all-reduce of float32. "
    "Bits a value count all that is sent: norms, means and indices too, in buckets of 512.",
    "Codes go to all ranks, (ranks − 1) of them from each; or to the rank that owns a part, whose "
    "sum is coded again; or are summed in a ring, where a sum of codes is the code of the sum.",
    "The variance is E|v − C(v)|² / |v|², measured on 26,122 Gaussian values; gradients are not "
    "Gaussian. Above 1 error feedback diverges. QSGD is unbiased, one bit and top are not.",
    "Seconds include coding, as one core took it for a value. A run is held to the same link "
    "and seconds of coding; its own are by the device clock.",
]
