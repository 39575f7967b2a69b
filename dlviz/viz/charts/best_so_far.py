"""The best that a search has found against the samples that it took, a line a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlviz.analysis.descent import best_so_far as least_so_far
from dlviz.viz.charts.curve import curve
from dlviz.viz.charts.figure import Figure


def best_so_far(
    samples: Mapping[str, Sequence[Sequence[float]]],
    *,
    title: str = "The best placement so far",
    ylabel: str = "seconds",
    theme: str = "auto",
) -> Figure:
    """Draw the least of `samples` until each: by method, of each run (a seed) every sample's value
    in order; inf is a sample that did not fit. All runs of a method have as many samples.

    A method with one sample a run is a level line. Raises ValueError for a method without samples
    and for runs of unequal length.
    """
    most = max((len(run) for runs in samples.values() for run in runs), default=0)
    lines, across = {}, {}
    for name, runs in samples.items():
        lengths = sorted({len(run) for run in runs})
        if lengths[:1] in ([], [0]) or len(lengths) > 1:
            raise ValueError(
                f"samples[{name!r}] has runs of {lengths or 0} samples: give one run or more, of "
                "as many samples each."
            )
        best = least_so_far(np.asarray(runs, dtype=np.float64))
        at = np.arange(1, lengths[0] + 1)
        if lengths[0] == 1:
            best, at = np.repeat(best, 2, axis=1), np.array([1, most])
        lines[name], across[name] = (best[0] if len(runs) == 1 else best), at
    return curve(
        lines, x=across, title=title, xlabel="samples", ylabel=ylabel, log_x=True, theme=theme
    )
