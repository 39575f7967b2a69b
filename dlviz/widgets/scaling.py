"""ScalingExplorer: how many times as fast data parallelism makes a step, and what eats the rest.

    ranks, bytes of gradients, buckets, overlap, the link, seconds of compute
        speed-up over ranks, beside as many times as there are ranks
        communication / computation over ranks

Both are the closed forms of dlviz/sim/scaling.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import traitlets

from dlviz.sim.scaling import SCALINGS, scaled
from dlviz.trace import Trace
from dlviz.viz import palette, text
from dlviz.widgets.explorer import Explorer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 64  # ranks
SIZES = [round(10 ** (step / 4)) for step in range(12, 41)]  # bytes, 1 KB to 10 GB
WAYS = (
    "is shared by the ranks",
    "is each rank's own",
    "is shared, and the model grows with the ranks",
)
SAYS = dict(zip(SCALINGS, WAYS, strict=True))


class ScalingExplorer(Explorer):
    """Choose a link, the size of the gradients and how much of the compute hides communication;
    see how far data parallelism scales.

    `nbytes` of gradients are summed by a ring all-reduce; `alpha` in s, `beta` in s/byte; `compute`
    is the seconds of a step on one rank; `overlap`, 0 to 1, the part of a rank's compute behind
    which all `buckets` but the last can hide; `way` is "strong" where the ranks share one batch,
    "weak" where each has its own, "model_weak" where they share it and the model grows with them.
    All may be set later on. Raises ValueError where a first value cannot be.
    """

    module = "scaling/index"
    controls = ("ranks", "nbytes", "alpha", "beta", "compute", "buckets", "overlap", "way")

    ranks = traitlets.Any(8).tag(sync=True)
    nbytes = traitlets.Any(10**8).tag(sync=True)
    alpha = traitlets.Any(10e-6).tag(sync=True)
    beta = traitlets.Any(1e-10).tag(sync=True)
    compute = traitlets.Any(1.0).tag(sync=True)
    buckets = traitlets.Any(4).tag(sync=True)
    overlap = traitlets.Any(0.5).tag(sync=True)
    way = traitlets.Any("strong").tag(sync=True)

    def __init__(self, *, theme: str = "auto", **values: Any):
        now = {name: values.pop(name, self.traits()[name].default()) for name in self.controls}
        if values:
            raise TypeError(f"ScalingExplorer has no {next(iter(values))!r}.")
        self.check(now)
        super().__init__(Trace(), now, theme)

    def check(self, values: dict[str, Any]) -> None:
        ranks, numbers = values["ranks"], {**values, "way": 0}
        for name, value in numbers.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise ValueError(f"{name}={value!r} is no number.")
        if not isinstance(ranks, int) or not 1 <= ranks <= MOST:
            raise ValueError(f"ranks={ranks!r} cannot be shown: use 1 to {MOST}.")
        scaled(**values)

    def told(self) -> dict[str, Any]:
        steps = [scaled(**{**self._now, "ranks": ranks}) for ranks in range(1, MOST + 1)]
        return {
            "title": "How far does data parallelism scale?",
            "most": MOST,
            "sizes": SIZES,
            "ways": list(SAYS.items()),
            "style": palette.line(0)[0],
            "speedup": [one.speedup for one in steps],
            "ratio": [one.ratio for one in steps],
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

        theme = "dark" if self.theme == "dark" else "light"
        ranks = [float(many) for many in range(1, MOST + 1)]
        values = {"speed-up": self.told()["speedup"], "as many times as ranks": ranks}
        title = "Speed-up over ranks"
        return curve(values, x=ranks, title=title, xlabel="ranks", ylabel="speed-up", theme=theme)
