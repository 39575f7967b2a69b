"""Tables beside the pictures, for those who cannot see them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz import metrics
from dlviz.analysis import messages as analysis
from dlviz.analysis.clocks import clock_of
from dlviz.analysis.compared import at_best_rates
from dlviz.analysis.descent import OVER
from dlviz.analysis.memory import held
from dlviz.analysis.prediction_error import matched
from dlviz.analysis.products import layer_collectives
from dlviz.analysis.recorded import Recorded
from dlviz.analysis.shares import kind_seconds
from dlviz.viz import palette
from dlviz.viz.charts.bubble import SIZES, points
from dlviz.viz.charts.losses import Curves
from dlviz.viz.charts.staleness import applied
from dlviz.viz.words import text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas

    from dlviz.trace import Trace


def timeline_table(trace: Trace, *, clock: str | None = None) -> pandas.DataFrame:
    """The timeline as a table: for each rank and kind how many spans, and for how long, in seconds.

    `total` is the time in which at least one span of the kind was open, `mean` that of one span,
    `share` is the total divided by the length of the whole timeline.
    """
    import pandas

    clock = clock_of(trace, clock)
    length = metrics.makespan(trace, clock)
    order = {kind: place for place, kind in enumerate(palette.KINDS)}
    table = [
        (rank, kind, count, total, mean, total / length if length else 0.0)
        for rank, kind, count, total, mean in kind_seconds(trace, clock)
    ]
    table.sort(key=lambda row: (row[0], order.get(row[1], len(order))))
    return pandas.DataFrame(table, columns=["rank", "kind", "count", "total", "mean", "share"])


def bubble_table(traces: Any, *, clock: str | None = None) -> pandas.DataFrame:
    """The bubble chart as a table: a row for each of `traces` (as `viz.bubble` takes them).

    Its sizes, its clock, its bubble ratio and fraction, and the ratio by the closed form (NaN where
    there is none).
    """
    import pandas

    columns = ["name", *SIZES, "origin", "ratio", "fraction"]
    rows = [
        {**{name: asdict(point)[name] for name in columns}, "formula": point.formula()}
        for point, _, _ in points(traces, clock)
    ]
    return pandas.DataFrame(rows, columns=[*columns, "formula"])


def memory_table(trace: Trace, *, what: str | None = "activations") -> pandas.DataFrame:
    """The most that each rank held (bytes; of a simulated pipeline microbatches), since when
    (seconds), and the most microbatches in flight by its spans."""
    import pandas

    rows = held(trace, what)
    flying = metrics.peak_in_flight(trace)
    peaks = [
        (one.rank, one.peak, one.time[np.argmax(one.level)] if one.peak else np.nan,
         int(flying[one.rank]))
        for one in rows
    ]  # fmt: skip
    return pandas.DataFrame(peaks, columns=["rank", "peak", "from", "in flight"])


def compare_table(
    predicted: Trace, measured: Trace, *, step: int | None = None, clock: str | None = None
) -> pandas.DataFrame:
    """Predicted beside measured: a row for each action of either, in seconds since the first one.

    `later` and `longer` are measured minus predicted; NaN where one side has no such action.
    """
    import pandas

    one, other = matched(predicted, measured, step, clock)
    pairs = [*enumerate(one.other.tolist())]
    pairs += [(-1, row) for row in np.flatnonzero(other.other < 0).tolist()]
    rows = []
    for a, b in pairs:
        side, row = (one, a) if a >= 0 else (other, b)
        named = [side.spans[name][row] for name in ("rank", "kind", "stage", "microbatch")]
        times = [
            value if at >= 0 else np.nan
            for own, at in ((one, a), (other, b))
            for value in (own.start[at], own.end[at] - own.start[at])
        ]
        rows.append((*named, *times, times[2] - times[0], times[3] - times[1]))
    columns = ["rank", "kind", "stage", "microbatch", "predicted start", "predicted seconds",
               "measured start", "measured seconds", "later", "longer"]  # fmt: skip
    return pandas.DataFrame(rows, columns=columns)


def spectrum_table(
    curves: Curves,
    *,
    target: float,
    examples: float | Sequence[float],
    over: int = OVER,
    clock: str = "wall",
) -> pandas.DataFrame:
    """What `viz.spectrum` draws: the `metrics.to_target` of each run by name, (Trace, losses), and
    how late it was at worst (`late`, s; NaN where it was not paced)."""
    import pandas

    rows = []
    for name, (trace, losses) in curves.items():
        found = metrics.to_target(trace, losses, target, examples=examples, over=over, clock=clock)
        late = (trace.meta.get("lateness") or {}).get("worst", np.nan)
        rows.append((text.named(name), *found, late))
    columns = ["method", "examples_per_second", "examples_to_target", "seconds", "late"]
    return pandas.DataFrame(rows, columns=columns)


def compared_table(
    path: str | Path, *, target: float, over: int = OVER, of: int | None = None
) -> pandas.DataFrame:
    """Recorded methods at their best rates, a row each, which `viz.spectrum` draws too: `rate` is
    the learning rate, `alpha` that of elastic averaging, a dash in other methods.

    Medians over the seeds, and of the examples to target the fewest and the most; `last third` is
    the mean loss of the last third of the batches, with the least and the greatest. With `of` test
    examples also the percentage that is right at the end, by one model and by the averaged
    predictions of all ranks.

    `path`: a file of `analysis.compared`, which says what is best.
    """
    import pandas

    table = []
    for one in at_best_rates(Recorded.load(path).rows, target, over):
        examples, seconds = np.median(one.examples), np.median(one.seconds)
        row = {
            "method": one.method,
            "rate": one.lr,
            "alpha": "–" if one.alpha is None else one.alpha,
            "examples_per_second": one.examples_per_second,
            "examples_to_target": examples if np.isfinite(examples) else np.nan,
            "fewest": min(one.examples),
            "most": max(one.examples),
            "seconds": seconds if np.isfinite(seconds) else np.nan,
            "late": np.nan,
            "last third": np.median(one.ends),
            "least": min(one.ends),
            "greatest": max(one.ends),
        }
        if of is not None:
            row["right (%)"] = 100 * np.median(one.right) / of
            row["averaged (%)"] = 100 * np.median(one.averaged) / of
        table.append(row)
    return pandas.DataFrame(table)


def staleness_table(trace: Trace) -> pandas.DataFrame:
    """What `viz.staleness` draws: for each worker and for all, how many gradients were applied, and
    how many updates old they were (mean, least, most), until the first worker pushed its last."""
    import pandas

    found = applied(trace)
    rows = []
    for rank in (*np.unique(found["rank"]).tolist(), "all"):
        own = found.staleness[(found["rank"] == rank) | (rank == "all")]
        rows.append((rank, len(own), own.mean(), own.min(), own.max()))
    return pandas.DataFrame(rows, columns=["rank", "updates", "mean", "least", "most"])


def collectives_table(trace: Trace, rank: int = 0) -> pandas.DataFrame:
    """The collectives of layers cut over ranks as a table, in the order in which `rank` took part:
    direction, collective, layer, and the bytes that the rank sent in it."""
    import pandas

    nbytes = trace.messages.nbytes
    rows = [
        (call.direction, call.collective, call.layer, int(nbytes[list(call.messages)].sum()))
        for call in layer_collectives(trace)
        if call.rank == rank
    ]
    columns = ["direction", "collective", "of layer", f"bytes rank {rank} sends"]
    return pandas.DataFrame(rows, columns=columns)


def traffic_table(trace: Trace) -> pandas.DataFrame:
    """The traffic as a table: bytes from the rank of the row to that of the column; the last row
    and column have what each received and sent in all. Where ranks called the backend's
    collectives, whose messages are not in the Trace, a column "by collectives" has what each sent
    in them (as `metrics.bytes_sent` counts it)."""
    import pandas

    table = pandas.DataFrame(analysis.traffic(trace)[0], index=trace.ranks, columns=trace.ranks)
    table.index.name, table.columns.name = "from", "to"
    by_collectives = analysis.collective_bytes(trace)[trace.ranks]
    if by_collectives.any():
        table["by collectives"] = by_collectives
    table["sent"] = table.sum(axis=1, skipna=False)
    table.loc["received"] = table.sum(axis=0, skipna=False)
    return table
