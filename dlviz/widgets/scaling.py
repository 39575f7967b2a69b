"""ScalingExplorer: how many times as fast data parallelism makes a step, and what eats the rest.

    ranks, bytes of gradients, buckets, overlap, the link, seconds of compute
        speed-up over ranks, beside the ideal
        communication / computation over ranks

Both are the closed forms of dlviz/sim/scaling.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dlviz.sim.scaling import scaled
from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.widgets.control import Choice, Field, Slider
from dlviz.widgets.explorer import Explorer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 64  # ranks
SIZES = [round(10 ** (step / 4)) for step in range(12, 41)]  # bytes, 1 KB to 10 GB
SHARES = [part / 100 for part in range(101)]
BATCHES = {
    "strong": "is shared by the ranks",
    "weak": "is each rank's own",
    "model_weak": "is shared, and the model grows with the ranks",
}


class ScalingExplorer(Explorer):
    """Choose a link, the size of the gradients and how much of the compute hides communication;
    see how far data parallelism scales.

    `nbytes` of gradients are summed by a ring all-reduce; `alpha` in s, `beta` in s/byte; `compute`
    is the seconds of a step on one rank; `overlap`, 0 to 1, the part of a rank's compute behind
    which all `buckets` but the last can hide; `scaling` is "strong" where the ranks share one
    batch, "weak" where each has its own, "model_weak" where they share it and the model grows with
    them. All may be set later. Raises ValueError for an invalid first value.
    """

    module = "scaling/index"
    controls = (
        Slider("ranks", "ranks", 8, values=range(1, MOST + 1), says="{} ranks",
               keys=("← →", "fewer, more ranks")),
        Slider("nbytes", "gradients", 10**8, values=SIZES, unit="bytes"),
        Slider("overlap", "overlap", 0.5, values=SHARES, unit="percent"),
        Choice("scaling", "the batch", "strong", options=BATCHES),
        Field("alpha", "α", 10e-6, unit="µs a message", per=1e6),
        Field("beta", "β", 1e-10, unit="ns a byte", per=1e9),
        Field("compute", "compute", 1.0, unit="ms", per=1e3),
        Field("buckets", "gradients in", 4, unit="buckets"),
    )  # fmt: skip
    former = {"way": "scaling"}

    def check(self, values: dict[str, Any]) -> None:
        ranks, numbers = values["ranks"], {**values, "scaling": 0}
        for name, value in numbers.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise ValueError(f"{name}={value!r} is not a number.")
        if not isinstance(ranks, int) or not 1 <= ranks <= MOST:
            raise ValueError(f"ranks={ranks!r} cannot be shown: use 1 to {MOST}.")
        scaled(**values)

    def payload(self) -> dict[str, Any]:
        steps = [scaled(**{**self._now, "ranks": ranks}) for ranks in range(1, MOST + 1)]
        speedup = [one.speedup for one in steps]
        ratio = [one.ratio for one in steps]
        low = 2 ** math.floor(math.log2(min(*speedup, 1)))
        ideal = {"name": "as many times as there are ranks", "kind": "best", "y": [1, MOST]}
        ranks: dict[str, Any] = {"log": 2, "ends": [1, MOST], "label": "ranks"}
        return {
            "title": "How far does data parallelism scale?",
            "lines": {
                "speedup": {
                    "title": "Speed-up over ranks; broad band: ideal",
                    "across": ranks,
                    "up": {"log": 2, "ends": [low, MOST]},
                    "lines": [{**ideal, "x": [1, MOST]}, line("speed-up", speedup)],
                },
                "ratio": {
                    "title": "Communication / computation",
                    "across": ranks,
                    "up": {"ends": [0, max(ratio) * 1.05 or 1]},
                    "lines": [line("communication / computation", ratio)],
                },
            },
            "words": [
                f"{ranks} rank{'s' * (ranks > 1)}: {one.speedup:.3g} times as fast as one "
                f"({100 * one.speedup / ranks:.3g} % of {ranks}). A step takes "
                f"{text.seconds(one.step)}: {text.seconds(one.compute)} of compute; of "
                f"{text.seconds(one.communication)} of communication "
                f"{text.seconds(one.step - one.compute)} are exposed."
                for ranks, one in enumerate(steps, 1)
            ],
        }

    def picture(self) -> Figure:
        """The speed-up over ranks."""
        from dlviz.viz.print import curve

        ranks = [float(many) for many in range(1, MOST + 1)]
        speedup = [scaled(**{**self._now, "ranks": many}).speedup for many in range(1, MOST + 1)]
        values = {"speed-up": speedup, "as many times as ranks": ranks}
        title = "Speed-up over ranks"
        return curve(
            values, x=ranks, title=title, xlabel="ranks", ylabel="speed-up", theme=self.paper
        )


def line(name: str, values: list[float]) -> dict[str, Any]:
    """A line over ranks, on which the reader's own number is marked."""
    color = palette.line(0)[0]
    return {"name": name, "kind": "own", "color": color, "x": [*range(1, MOST + 1)], "y": values}
