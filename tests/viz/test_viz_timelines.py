"""Several pipelines on one time scale: each bar is an action of its Trace, where it was."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import Costs, metrics, simulate, viz
from dlviz.schedules import make
from dlviz.trace import Trace

COSTS = Costs(0.01, None, 0.01, 0.01)


def bars(figure, skip=("idle",)):
    """(row, start, length, label) of each bar."""
    return sorted(
        (round(y, 6), round(base, 6), round(x, 6), label)
        for series in figure.data
        if series.name not in skip
        for y, base, x, label in zip(series.y, series.base, series.x, series.text, strict=True)
    )


def test_every_action_of_every_trace_is_a_bar_on_its_rank_with_its_microbatch():
    traces = {name: simulate(make(name, 3, 4), COSTS) for name in ("1f1b", "zb_h1")}
    expected = []
    for place, trace in enumerate(traces.values()):
        for span in trace.spans.rows():
            y, length = 4 * place + 1 + span.rank, span.end - span.start
            times = round(1000 * span.start, 6), round(1000 * length, 6)
            expected.append((float(y), *times, str(span.microbatch)))
    assert bars(viz.timelines(traces)) == sorted(expected)


def test_what_bars_leave_of_the_hatched_rows_is_the_bubble():
    trace = simulate(make("gpipe", 4, 6), COSTS)
    figure = viz.timelines({"GPipe": trace})
    (idle,) = [series for series in figure.data if series.name == "idle"]
    busy = sum(np.sum(series.x) for series in figure.data if series.name != "idle")
    assert np.sum(idle.x) / busy - 1 == pytest.approx(metrics.bubble_ratio(trace)) != 0


def test_traces_begin_together_and_share_a_scale_and_a_legend():
    early = simulate(make("1f1b", 2, 3), COSTS)
    late = [
        {**row._asdict(), "start": row.start + 5, "end": row.end + 5} for row in early.spans.rows()
    ]
    late = [{k: v for k, v in row.items() if k not in ("flow",)} for row in late]
    figure = viz.timelines({"early": early, "late": Trace(late, meta={"clock": "simulated"})})
    first, second = (
        [(x, length, label) for y, x, length, label in bars(figure) if low < y < low + 3]
        for low in (0, 3)
    )
    assert first == second
    names = [series.name for series in figure.data if series.showlegend]
    assert sorted(names) == ["backward", "forward", "idle"]


def test_chunks_are_shades_and_eight_ranks_fit_a_laptop():
    one, two = simulate(make("1f1b", 8, 8)), simulate(make("interleaved", 8, 8, chunks=2))
    figure = viz.timelines({"one": one, "two": two, "three": one})
    assert figure.layout.height <= 640
    colors = {s.name: s.marker.color for s in figure.data if s.name.startswith("forward")}
    assert set(colors) == {"forward", "forward, chunk 1"} and len(set(colors.values())) == 2


def test_what_cannot_share_a_picture_is_refused():
    simulated, empty = simulate(make("1f1b", 2, 2)), Trace([], meta={"clock": "simulated"})
    with pytest.raises(ValueError, match="holds no Trace"):
        viz.timelines({})
    with pytest.raises(ValueError, match="'nothing' has no forward, backward or update"):
        viz.timelines({"it": simulated, "nothing": empty})
    with pytest.raises(ValueError, match="step=3 has no span"):
        viz.timelines({"it": simulated}, step=3)
