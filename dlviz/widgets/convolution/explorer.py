"""ConvolutionExplorer: how to cut a convolution between ranks.

    layer, images, ranks along samples, rows, columns, channels and filters, the link
        x, w and y as boxes in the colours of their ranks: what moves, what stays
        seconds, elements sent and memory of this cut, of the best ones, and of one dim alone
        Run it: real ranks compute it, paced; measured below predicted

The arithmetic is in cuts.py, the run in run.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dlviz.machine.topology import require
from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.widgets.control import Choice, Field, Slider, whole
from dlviz.widgets.convolution import cuts
from dlviz.widgets.convolution.run import LARGEST, RUN, run
from dlviz.widgets.recording import Recording
from dlviz.widgets.running import Found, Progress
from dlviz.widgets.view import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 64  # ranks
DRAWN = 7  # cuts in the still picture
PARTS = (1, 2, 3, 4, 6, 8, 12, 16)  # of a dim
SAMPLES = [2**power for power in range(9)]
WIDTHS = (1, 3, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048)
SIZES = (4, 7, 8, 13, 14, 16, 27, 28, 32, 56, 64, 112, 128, 224, 256)
KERNELS, STRIDES = (1, 2, 3, 4, 5, 7, 11), (1, 2, 3, 4)
BANDWIDTHS = [float(f"{10 ** (step / 4):.2g}") for step in range(24, 49)]  # bytes/s, to 1 TB/s
OWN = ("layer", cuts.OWN)
OWN_SIZES = {"channels": 4096, "filters": 4096, "size": 512, "kernel": 11, "stride": 4}  # at most
LIMITS = {"samples": 1024, **OWN_SIZES, **dict.fromkeys(cuts.DIMS, MOST)}


class ConvolutionExplorer(Recording):
    """Choose a convolution, over how many ranks each of its dims is cut, and their link; see which
    rank has which block, what a training step takes, sends and holds, and which cut is best; run
    it.

    `layer` is "alexnet_first", "alexnet_last", "resnet_first", "resnet_last" or "own", of
    `channels`, `filters`, `size` rows and columns, `kernel` and `stride`, padded by half a kernel.
    `samples` are the images of a step; `n`, `h`, `w`, `c` and `f` the ranks along samples, rows,
    columns, channels and filters, at most 64 together. `alpha` is in s a message, `bandwidth` in
    bytes/s; a rank computes 1 GFLOP/s. All may be set later; an invalid value shows an error in the
    widget and changes nothing. `run()` does what the button does; the last runs are shown again
    where their controls are chosen. `measured` is the Trace of the last run, or None. Raises
    ValueError for an invalid first value.
    """

    module = "convolution/index"
    controls = (
        (
            Choice("layer", "layer", "resnet_first", keys=("l", "next layer"),
                   options={name: words for name, (words, *_) in cuts.LAYERS.items()}),
            Slider("samples", "images", 2, values=SAMPLES, says="{} images",
                   keys=("↑ ↓", "more images, fewer")),
        ),
        (
            Slider("channels", "channels", 64, values=WIDTHS, where=OWN),
            Slider("filters", "filters", 64, values=WIDTHS, where=OWN),
            Slider("size", "rows and columns", 56, values=SIZES, where=OWN),
            Slider("kernel", "kernel", 3, values=KERNELS, says="{0} by {0}", where=OWN),
            Slider("stride", "stride", 1, values=STRIDES, where=OWN),
        ),
        (
            Slider("n", "N", 2, values=PARTS, says="{} ranks along samples"),
            Slider("h", "H", 2, values=PARTS, says="{} ranks along rows",
                   keys=("← →", "fewer, more ranks along rows")),
            Slider("w", "W", 1, values=PARTS, says="{} ranks along columns"),
            Slider("c", "C", 1, values=PARTS, says="{} ranks along channels"),
            Slider("f", "F", 1, values=PARTS, says="{} ranks along filters"),
        ),
        Field("alpha", "α", 1e-4, unit="ms a message", per=1e3),
        Slider("bandwidth", "bandwidth", 1e8, values=BANDWIDTHS, unit="bytes",
               says="{} a second", short="{}/s"),
    )  # fmt: skip

    def check(self, values: dict[str, Any]) -> None:
        for name, most in LIMITS.items():
            whole(name, values[name], 1, most)
        require("the link", "alpha", values["alpha"], zero=True, infinite=False)
        require("the link", "bandwidth", values["bandwidth"], zero=False, infinite=False)
        if cuts.ranks_of(values) > MOST:
            parts = " × ".join(str(values[name]) for name in cuts.DIMS)
            raise ValueError(
                f"{parts} are {cuts.ranks_of(values)} ranks, and {MOST} can be shown: cut a dim "
                "into fewer parts."
            )
        cuts.layer_of(values)

    def begin(self) -> None:
        super().begin()
        self.moved(self._now)

    def moved(self, values: dict[str, Any]) -> None:
        self._now, self._settled = values, cuts.immediate(values)

    def settle(self) -> None:
        """Look at all other cuts, which takes longer than a slider waits for."""
        if not self._settled:
            self._settled = True
            self.show()

    def work(self) -> Callable[[Progress], Found]:
        if cuts.ranks_of(self._now) > RUN:
            raise ValueError(too_many(self._now))
        return self.recording(dict(self._now), run)

    def choice(self, values: dict[str, Any]) -> Any:
        own = values["layer"] == cuts.OWN
        return {n: value for n, value in values.items() if own or n not in OWN_SIZES}

    def label(self, values: dict[str, Any]) -> str:
        name = cuts.cut_name(cuts.cut_of(values))
        return f"{cuts.LAYERS[values['layer']][0]}, {values['samples']} images: {name}"

    def pages(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The runs, and the other layers."""
        others = ({**self._now, "layer": layer} for layer in cuts.LAYERS)
        for one in (*self.recorded, *others):
            yield one, self._shown(one)

    def payload(self) -> dict[str, Any]:
        return {
            **super().payload(),
            "title": "How to cut a convolution between ranks?",
            "details": DETAILS,
            "parts": [*cuts.PARTS],
            "ranks": [styled(palette.rank_style(rank)) for rank in range(MOST)],
            **self._shown(self._now, self._settled),
            "run": self._run or self.run_of(self._now).get("run"),
        }

    def _shown(self, values: dict[str, Any], settled: bool = True) -> dict[str, Any]:
        """What follows from the controls."""
        layer = cuts.layer_of(values)
        own = cuts.row(layer, cuts.cut_of(values), values)
        others = [*(cuts.best(layer, values) if settled else []), *cuts.singles(layer, values)]
        others.sort(key=lambda one: one["seconds"])
        rows = {one["name"]: one for one in others}
        return {
            "rows": [own, *(one for name, one in rows.items() if name != own["name"])],
            "tensors": cuts.tensors(layer, values),
            "answer": answer(values, own, others[:1] if settled else []),
            "long": too_many(values),
            "run": self.run_of(values).get("run"),
        }

    def picture(self) -> Figure:
        """Seconds of this cut and of others."""
        from dlviz.viz.print import bars

        rows = self._shown(self._now)["rows"][:DRAWN]
        words = cuts.LAYERS[self._now["layer"]][0]
        return bars(
            {row["name"]: 1e3 * row["seconds"] for row in rows}, ylabel="ms a step",
            title=f"{words}, {self._now['samples']} images on {cuts.ranks_of(self._now)} ranks",
            theme=self.paper,
        )  # fmt: skip


def answer(values: dict[str, Any], own: dict[str, Any], best: list[dict[str, Any]]) -> str:
    """How fast this cut is, beside one rank and the best cut, once that is known."""
    alone = cuts.cost(cuts.layer_of(values), {}, values).seconds
    ranks = cuts.ranks_of(values)
    if ranks == 1:
        return f"One rank takes {text.seconds(alone)} a step."
    words = [
        f"{own['name']} takes {text.seconds(own['seconds'])} a step, one rank "
        f"{text.seconds(alone)}: {alone / own['seconds']:.3g} times as fast."
    ]
    if own["idle"]:
        words.append(f"{own['idle']} of {ranks} ranks compute nothing.")
    for one in best:
        faster = f"{one['name']} takes {text.seconds(one['seconds'])}."
        slower = one["seconds"] >= own["seconds"]
        words.append(f"No cut of {ranks} ranks is faster." if slower else faster)
    return " ".join(words)


def too_many(values: dict[str, Any]) -> str:
    """Why this cannot be run here, or ""."""
    if cuts.ranks_of(values) > RUN:
        return f"{RUN} ranks can be run here: choose as many, or fewer."
    return ""


DETAILS = [
    "A training step of the layer: forward and backward, in float32; a rank computes 1 GFLOP/s. "
    "N samples, C channels, H rows and W columns of x; F filters.",
    "x is gathered over F once and stored; y is summed over C, and each rank has a part of the "
    "sum. Halos travel while the interior is computed: their seconds are those that the "
    "computation waits. dw is summed over the ranks that hold the same weights.",
    "Elements sent and memory are those of the rank with most, the elements part by part. Memory "
    "is weights, their gradients, and what the backward needs of x. Idle ranks have no outputs.",
    "A run is of 3 steps on real ranks, held to the same link and speed; its seconds are by the "
    f"device clock. A layer of more than {text.count(LARGEST)} multiplications is cut down for two "
    "cores; its prediction is for the sizes that ran.",
]
