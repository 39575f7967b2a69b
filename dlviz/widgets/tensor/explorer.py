"""TensorExplorer: where to cut one linear layer between ranks, or an MLP; which block of each
matrix a rank has, and what it sends.

    form, ranks, B, C_in, C_out
        X, W, Y and their gradients, a block of each rank      a map over B and C_out: least bytes
        bytes that a rank sends forward, backward and in the gradient sync, by each form
        Run it: the same on real ranks, paced; measured below predicted, its messages in a player

The arithmetic is in dlviz/sim/layer_cuts.py, the blocks are in picture.py, the run in run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.sim.layer_cuts import (
    DEVICE,
    FORMS,
    LARGEST,
    LINK,
    NAMES,
    PHASES,
    RANKS,
    SIZES,
    Values,
    cost_map,
    prices,
    seconds,
    sent,
)
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.scene import Scene
from dlviz.viz.words import text
from dlviz.widgets.control import Choice, Slider, whole
from dlviz.widgets.player import player_state
from dlviz.widgets.recording import Recording
from dlviz.widgets.requests import Answer, sentence
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.tensor.picture import picture
from dlviz.widgets.tensor.run import STEPS, run
from dlviz.widgets.view import compact, dressed, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 1.0  # s: what a step of a run may take


class TensorExplorer(Recording):
    """Choose in which form ranks share a layer, how many they are and how large it is; see who has
    which block of each matrix and what a rank sends; run it.

    `form` is "data", "partition_output" (X is gathered from its rows), "partition_output_whole" (X
    is on all ranks) or "reduce_output" of a linear layer, "mlp_data" or "mlp" (column-parallel,
    GELU, row-parallel) of an MLP. `batch` is B, the rows of X, `inputs` C_in, `outputs` C_out; of
    an MLP C_in is its hidden size, C_out its inner. All may be set later; an invalid value shows an
    error in the widget and changes nothing. `run()` does what the button does; the last runs are
    shown again where their controls are chosen, and on a saved page. `measured` is the Trace of the
    last run, or None. Raises ValueError for an invalid first value.
    """

    module = "tensor/index"
    controls = (
        Choice("form", "form", "partition_output", keys=("f", "next form"),
               options={name: form.title for name, form in FORMS.items()}),
        Choice("ranks", "ranks", 4, options=range(RANKS[0], RANKS[1] + 1)),
        Slider("batch", "B", 64, values=SIZES, typed="rows", panel="sizes",
               keys=("← →", "B smaller, larger")),
        Slider("inputs", "C_in", 512, values=SIZES, typed="inputs", panel="sizes"),
        Slider("outputs", "C_out", 2048, values=SIZES, typed="outputs", panel="sizes",
               keys=("↑ ↓", "C_out larger, smaller")),
    )  # fmt: skip

    player = traitlets.Unicode("").tag(sync=True)

    def check(self, values: dict[str, Any]) -> None:
        check(**values)

    def show(self) -> None:
        self.player = self.run_of(self._now).get("player", "")
        super().show()

    def requests(self) -> dict[str, Callable[..., Answer]]:
        return {**super().requests(), "ahead": self._along}

    def _along(self, name: str, sizes: list[int]) -> Answer:
        """The pictures along a slider, to be drawn before the kernel answers."""
        every = {size: {**self._now, name: size} for size in sizes}
        for values in every.values():
            check(**values)
        return self.ahead(name, {size: self._shown(values) for size, values in every.items()})

    def work(self) -> Callable[[Progress], Found]:
        long = too_long(**self._now)
        if long:
            raise ValueError(long)
        return self.recording(dict(self._now), run)

    def record(self, values: dict[str, Any], found: dict[str, Any], trace: Trace) -> dict[str, Any]:
        return {**super().record(values, found, trace), "player": played(values, trace)}

    def label(self, values: Values) -> str:
        ranks = values["ranks"]
        return (
            f"{FORMS[values['form']].title}, {ranks} rank{'s' * (ranks > 1)}, B {values['batch']}, "
            f"{values['inputs']} → {values['outputs']}"
        )

    def saved_state(self) -> dict[str, Any]:
        return {**super().saved_state(), "player": self.player}

    def pages(self) -> Iterator[tuple[Values, dict[str, Any]]]:
        """Each form of the layer that is chosen and of those that were run."""
        every = [{**one, "form": form} for one in [self._now, *self.recorded] for form in FORMS]
        for number, values in enumerate(every):
            if values in every[:number]:
                continue
            try:
                check(**values)
                shown = {**self._shown(values), "error": ""}
                yield values, {**shown, "player": self.run_of(values).get("player", "")}
            except ValueError as error:
                yield values, {"error": sentence(error)}

    def picture(self) -> Figure:
        """What a rank sends over B, by each form."""
        from dlviz.viz.print import curve

        now = {**self._now, "ranks": max(2, self._now["ranks"])}
        batches = [size for size in SIZES if size >= SIZES[-1] // 256]
        names: dict[tuple[float, ...], list[str]] = {}  # forms that send the same are one line
        for one in prices(**now):
            own = (sum(sent(**{**now, "form": one["form"], "batch": batch})) for batch in batches)
            names.setdefault(tuple(own), []).append(FORMS[one["form"]].title)
        lines = {
            same[0] if len(same) == 1 else f"{same[0].partition(',')[0]}, X cut or not": [*own]
            for own, same in names.items()
        }
        title = f"Bytes that a rank sends, {now['inputs']} → {now['outputs']}, {now['ranks']} ranks"
        return curve(
            lines, x=batches, log=True, log_x=True, title=title, xlabel="rows of X, B",
            ylabel="bytes", theme=self.paper,
        )  # fmt: skip

    def payload(self) -> dict[str, Any]:
        return {
            **super().payload(),
            "title": "Where should a layer be cut?",
            "details": DETAILS,
            "forms": [[name, form.title, [*form.cuts]] for name, form in FORMS.items()],
            "names": NAMES,
            "directions": PHASES,
            "sizes": SIZES,
            "hues": HUES,
            "owners": [styled(palette.rank_style(rank)) for rank in range(RANKS[1])],
            **self._shown(self._now),
            "run": self._run or self.run_of(self._now).get("run"),
        }

    def _shown(self, values: dict[str, Any]) -> dict[str, Any]:
        """What follows from the controls."""
        run = self.run_of(values).get("run")
        on_map = ("ranks", "inputs")
        return {
            "matrices": picture(values, run and run["blocks"]),
            "drawn": "run" if run else "form",
            "prices": prices(**values),
            "map": cost_map(values["form"], values["inputs"]),
            "answer": answer(**values),
            "long": too_long(**values),
            "run": run,
            "points": [
                {**one["controls"], "bytes": one["run"]["bytes"]}
                for one in self._runs
                if all(one["controls"][name] == values[name] for name in on_map)
                and FORMS[one["controls"]["form"]].mlp == FORMS[values["form"]].mlp
            ],
        }


def check(form: str, ranks: int, **sizes: Any) -> None:
    """Raises ValueError, one sentence, for an invalid size, or one that the ranks cannot share."""
    for name, label in NAMES.items():
        whole(name, sizes[name], 1, LARGEST, label)
    for name, share in FORMS[form].cuts.items():
        value = sizes[name]
        if value % ranks:
            below, above = value // ranks * ranks, -(-value // ranks) * ranks
            fit = [size for size in (below, above) if 0 < size <= LARGEST]
            many = [n for n in range(RANKS[0], RANKS[1] + 1) if value % n == 0]
            raise ValueError(
                f"{name}={value} ({NAMES[name]}) cannot be split over {ranks} ranks: each rank "
                f"needs a whole number of {share}. Use {_or(many)} rank{'s' * (many != [1])}, or "
                f"{name}={_or(fit)}."
            )


def _or(values: list[int]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last


def answer(form: str, ranks: int, **sizes: int) -> str:
    """What a rank sends in a step, and from which B on data parallelism sends less."""
    if ranks == 1:
        return "One rank has all of it and sends nothing."
    says = f"A rank sends {exact(sum(sent(form, ranks, **sizes)))} bytes in a step."
    outputs, inputs = (f"B > {NAMES[name]} = {sizes[name]:,}" for name in ("outputs", "inputs"))
    if FORMS[form].mlp:
        return f"{says} Data parallelism sends less once {outputs}."
    return (
        f"{says} Data parallelism sends less than partition output once {outputs}, and less than "
        f"reduce output once {inputs}."
    )


def exact(nbytes: float) -> str:
    """Bytes as text: whole, or to a tenth for a mean over the ranks."""
    return f"{nbytes:,.0f}" if nbytes == int(nbytes) else f"{nbytes:,.1f}"


def too_long(form: str, ranks: int, **sizes: int) -> str:
    """Why a step cannot be run here, or ""."""
    takes = seconds(form, ranks, **sizes)
    if takes <= LONGEST:
        return ""
    return (
        f"A step takes {text.seconds(takes)}, and {text.seconds(LONGEST)} can be run here: use a "
        "smaller B, C_in or C_out."
    )


def played(values: Values, trace: Trace) -> str:
    """The messages of a run's last step, for the player: no tensor is watched, and the lines that
    sent are not the reader's."""
    title = f"{FORMS[values['form']].title}: the messages of one step"
    state = player_state(Scene(trace, STEPS - 1), title)
    return compact(dressed(trace, {**state, "lines": [], "sources": {}}))


_HUES = {form: hue for form, (_, hue, _) in palette.FORMS.items()}
HUES = {
    **_HUES,
    "partition_output_whole": _HUES["partition_output"],
    "mlp_data": _HUES["data"],
    "mlp": palette.GREEN,
}
DETAILS = [
    "B rows of X, C_in inputs, C_out outputs; float32. In a Transformer B is batch × tokens. An "
    "MLP has the hidden size C_in and the inner size C_out.",
    "Elements are counted as the lecture does: an all-gather or a reduce-scatter of N elements is "
    "N, an all-reduce is 2·N. A rank sends (n−1)/n of them. The lecture's summary drops the 2s: it "
    "compares C_out·C_in with B·C_in and B·C_out.",
    "X cut: X is gathered from the ranks' rows, and the gradient of X is reduce-scattered. X "
    "whole: all ranks have X, and its gradient is all-reduced, as in Megatron-LM. Both send as "
    "much. Sequence parallelism forgets the gathered X and gathers it again in the backward: it "
    "sends B·C_in more.",
    "The sides of the matrices are logarithmic. torch stores the transpose of W.",
    f"A step takes its products at {DEVICE.flops / 1e9:g} GFLOP/s, its messages at "
    f"{1e3 * LINK.latency:g} ms and {text.nbytes(int(LINK.bandwidth))}/s, and the update; a run is "
    "held to the same machine, and its seconds are by the wall clock.",
]
