"""The words in figures: names made safe to show, times and sizes with their units, the subtitle
that names the clock.

plotly reads some HTML, and TeX between dollar signs, in every text it draws. A name from a program
is shown as written, so it passes through `clean`, `cut` or `wrap` before it gets into a figure.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dlviz import patterns, schedules
from dlviz.analysis.columns import OWN_LANES
from dlviz.trace.hosts import worst_bound
from dlviz.viz import palette

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from dlviz.trace import Trace

    Traces = Trace | Sequence[Trace] | Mapping[str, Trace]

METHODS = {name: title for name, (title, *_) in palette.METHODS.items()}
TITLES = {**schedules.TITLES, **patterns.TITLES, **METHODS}
KINDS = {"backward_input": "input gradient", "backward_weight": "weight gradient"}
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
BYTES = (("GB", 1e9), ("MB", 1e6), ("KB", 1e3))  # decimal, as links and tensors are priced
FINEST = 1e-5  # of an axis: the precision of moments on it
LINE = 110  # characters of a subtitle's line
MACHINE = 50  # of them, for a machine's name
WHOLE = 400  # the same on paper, where no hover shows the rest
HOW = 100  # characters of what became of a rank
DONE = {  # by the operation of a receive
    "sum": "added", "copy": "copied", "max": "maximum taken", "min": "minimum taken",
    "product": "multiplied", "merge": "merged", "": "delivered",
}  # fmt: skip
TIMES = {"wall": "wall-clock time", "device": "device time"}
ORIGINS = {"wall": "wall clock", "paced": "paced", "simulated": "simulated"}
MEANS = {
    "wall": "Wall clock: the times are those that this machine took.",
    "hosts": "Wall clock: the times are those that these hosts took, by the first one's clock.",
    "paced": "Paced: processes, math and messages are real; each operation is held to the time "
    "that a modelled machine needs.",
    "simulated": "Simulated: nothing ran; the times come from a cost model.",
}
DETAILS = "details"  # the name of a figure's (i) among its annotations
READS = {
    "device": "Device time: the time on the modelled machine.",
    "wall": "Wall-clock time: the time at which this computer got to each operation.",
}


def clean(text: object) -> str:
    """The text on one line, with what plotly would take for markup or TeX shown as written."""
    flat = re.sub(r"[\s\x00-\x1f]+", " ", str(text)).strip()
    return html.escape(flat, quote=False).replace("$", "&#36;")


def short(text: object, width: int = 24) -> str:
    """The text on one line of at most `width` characters, as written."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def cut(text: object, width: int = 24) -> str:
    """The text in at most `width` characters, for a plotly label."""
    return clean(short(text, width))


def named(name: str) -> str:
    """The name of a schedule, an all-reduce or a strategy as readers know it; any other as is."""
    return TITLES.get(name, name)


def kind(name: str) -> str:
    """A kind of span as readers know it; any other name as is."""
    return KINDS.get(name, name)


def wrap(text: object, width: int = 64) -> str:
    """The whole text, broken into lines of at most `width` characters, for a hover label."""
    flat = " ".join(str(text).split())
    return "<br>".join(map(clean, textwrap.wrap(flat, width))) if len(flat) > width else clean(flat)


def unit(span: float) -> tuple[str, float]:
    """The best unit for an axis `span` seconds long, and its seconds."""
    return next(((name, size) for name, size in UNITS if span >= 2 * size), UNITS[-1])


def moment(value: float, name: str, size: float) -> str:
    """A time in the unit of an axis, to the microsecond or better: 12.400 ms."""
    return f"{value / size:.{6 if name == 's' else 3}f} {name}"


def brief_moment(value: float, name: str, size: float, across: float) -> str:
    """A time in the unit of an axis `across` seconds long, without meaningless digits: 12.4 ms. The
    Timeline's front end writes moments alike (momentOf in its words.js)."""
    digits = min(max(math.ceil(-math.log10(across * FINEST / size)), 0), 9)
    summary = f"{value / size:,.{digits}f}"
    return f"{summary.rstrip('0').rstrip('.') if digits else summary} {name}"


def seconds(value: float) -> str:
    """A duration in words: 3.1 ms."""
    name, size = next(
        ((n, s) for n, s in UNITS if abs(value) >= 0.9995 * s),  # 0.9996 ms is 1 ms
        UNITS[-1] if value else UNITS[1],
    )
    return (
        f"{value / size:.3g} {name}" if abs(value) < 1000 * size else f"{value / size:,.0f} {name}"
    )


def known(bound: float, took: float = math.inf) -> str:
    """How well times of two hosts compare, to `bound` seconds, and whether what is shown, which
    took so many seconds, is shorter."""
    words = f"times between hosts are known to {seconds(bound)}"
    return f"{words}, longer than this took" if abs(took) < bound else words


def ranks(numbers: list[int]) -> str:
    """Ranks in words: ranks 0, 1, 4–7."""
    runs: list[list[int]] = []
    for rank in sorted(numbers):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(parts)}"


def nbytes(value: int) -> str:
    """A size in words, a KB being 1000 bytes: 4.1 KB."""
    for name, size in BYTES:
        if value >= 0.9995 * size:  # 999,600 bytes are 1 MB
            many = value / size
            return f"{many:.3g} {name}" if many < 999.5 else f"{many:,.0f} {name}"
    return f"{value} {'byte' if value == 1 else 'bytes'}"


def byte_unit(span: float) -> tuple[str, float]:
    """The best unit for an axis of `span` bytes, and its bytes."""
    return next(((name, size) for name, size in BYTES if span >= 2 * size), ("bytes", 1.0))


def count(value: float) -> str:
    """A number of parameters in few characters: 7.5 B, 125 M."""
    for name, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= 0.9995 * size:
            return (
                f"{value / size:.3g} {name}"
                if value < 999.5 * size
                else f"{value / size:,.0f} {name}"
            )
    return f"{value:.3g}"


def cells(offset: int, count: int) -> str:
    """Elements of a buffer in words: cells 4–7."""
    return f"cell {offset}" if count == 1 else f"cells {offset}–{offset + count - 1}"


def provenance(trace: Any, clock: str, most: int = MACHINE) -> list[str]:
    """The lines of a subtitle about a Trace: the clock and the machine, its name cut to `most`
    characters, then a line if the run failed and one for every lost rank. `details` has the
    rest."""
    meta = trace.meta
    origin = meta.get("clock", "")
    machine = textwrap.shorten(_ran_on(meta), most, placeholder=" …")
    read = TIMES[clock] if origin == "paced" else ""
    parts = [ORIGINS.get(origin, "clock not stated"), machine, read]
    lines = [" · ".join(filter(None, parts))]
    if meta.get("outcome") == "failed":
        lines.append(
            meta.get("failure", {}).get("message")
            or "The run failed; the figure shows what was recorded until then."
        )
    elif meta.get("outcome") == "unreceived":
        lines.append("Some messages were never received.")
    for rank, lost in meta.get("lost", {}).items():
        how = textwrap.shorten(lost["how"], HOW, placeholder=" …")
        lines.append(f"Rank {rank} was lost after {seconds(lost['when'])}: it {how}.")
    return lines


def details(trace: Any, clock: str) -> list[str]:
    """The sentences behind a figure's (i): what its times mean, the whole machine, how late a paced
    run was and its warning."""
    meta = trace.meta
    origin, machine = meta.get("clock", ""), " ".join(str(meta.get("machine", "")).split())
    hosts = _hosts(meta)
    means = "hosts" if origin == "wall" and hosts else origin
    lines = [MEANS.get(means, "The Trace does not say which clock its times come from.")]
    if origin == "paced":
        lines.append(READS[clock])
    if hosts:
        each = ", ".join(f"{short(name, 60)} ({ranks(own)})" for name, own in hosts.items())
        lines.append(f"Hosts: {each}; {known(worst_bound(meta))}.")
        lines.append("Of two moments on two hosts that are closer, either may be the first.")
    if machine and means != "hosts":
        lines.append(f"{'Cost model' if origin == 'simulated' else 'Machine'}: {machine}.")
    if late := meta.get("lateness"):
        lines.append(
            f"This computer was {seconds(late['median'])} late in the median and "
            f"{seconds(late['worst'])} at worst."
        )
    if meta.get("warning"):
        lines.append(f"Warning: {meta['warning']}")
    return lines


def _hosts(meta: Mapping[str, Any]) -> dict[str, list[int]]:
    """The hosts of a run and their ranks, if it was on several."""
    hosts = meta.get("hosts", {})
    return hosts if len(hosts) > 1 else {}


def _ran_on(meta: Mapping[str, Any]) -> str:
    """What a run ran on, in words."""
    machine = " ".join(str(meta.get("machine", "")).split())
    return f"{len(_hosts(meta))} hosts" if _hosts(meta) else machine


def by_name(traces: Any) -> dict[str, Any]:
    """Traces by the names that readers know, a single one by "", those of a list by "Trace 1" and
    so on. Raises ValueError where there is none, and for what is no Trace."""
    if isinstance(traces, list | tuple):
        traces = {f"Trace {number}": trace for number, trace in enumerate(traces, 1)}
    found = traces if isinstance(traces, Mapping) else {"": traces}
    if not found:
        raise ValueError("traces has no Trace in it: give one or more.")
    for name, trace in found.items():
        if not (hasattr(trace, "spans") and hasattr(trace, "meta")):
            raise ValueError(
                f"{name or 'traces'} has to be a Trace, a list of Traces, or several by name, not "
                f"{type(trace).__name__}."
            )
    return {named(name): trace for name, trace in found.items()}


def merged(read: Iterable[tuple[Any, str]]) -> list[tuple[Any, str]]:
    """Several Traces, each with the clock it is read by, merged into one per kind of clock for
    `provenance` and `details`: with machines counted, and the worst lateness."""
    kinds: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for trace, clock in read:
        kinds.setdefault((trace.meta["clock"], clock), []).append(trace.meta)
    found = []
    for (origin, clock), metas in kinds.items():
        machines = [*dict.fromkeys(map(_ran_on, metas))]
        many = f"{len(machines)} {'sets of costs' if origin == 'simulated' else 'machines'}"
        if any(map(_hosts, metas)):
            many = " and ".join(machines)
        late = [meta["lateness"] for meta in metas if meta.get("lateness")]
        warnings = [*dict.fromkeys(meta["warning"] for meta in metas if meta.get("warning"))]
        failed = next((meta for meta in metas if meta.get("outcome") == "failed"), {})
        same = all(_hosts(meta) == _hosts(metas[0]) for meta in metas)
        meta = {
            **failed,
            "hosts": _hosts(metas[0]) if same else {},
            "clock_error": max(metas, key=worst_bound).get("clock_error", {}),
            "clock": origin,
            "machine": machines[0] if len(machines) == 1 else many,
            "warning": " ".join(warnings),
            "lateness": late
            and {
                "median": median(each["median"] for each in late),
                "worst": max(each["worst"] for each in late),
            },
        }
        found.append((SimpleNamespace(meta=meta), clock))
    return found


def topology(trace: Any) -> dict[str, Any]:
    """How the ranks are connected: {"kind": "switch", "ring", "racks" or "tree", "sizes": ranks in
    a group, level by level}. Kind "hosts" if they are on several, "" if unknown."""
    if _hosts(trace.meta):
        return {"kind": "hosts", "sizes": []}
    outline = trace.meta.get("topology")
    ranks = max(trace.meta["ranks"], 1)
    return outline if isinstance(outline, dict) else {"kind": "", "sizes": [ranks]}


def subtitle(trace: Any, clock: str) -> str:
    """The `provenance` as the subtitle of a plotly figure."""
    return "<br>".join(map(clean, provenance(trace, clock)))


def heading(title: str, below: str) -> dict[str, Any]:
    """A figure's title, the subtitle below it, and the top margin for both."""
    lines = below.count("<br>") + 1 if below else 0
    return {
        "title": {
            "text": f"<b>{cut(title, 90)}</b>",
            "subtitle": {"text": below, "font": {"size": 12}},
            "yref": "container",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 14},
        },
        "margin": {"t": 48 + 17 * lines},
    }


def inform(figure: go.Figure, details: list[str]) -> None:
    """Put an (i) left of a plotly figure's title that shows `details` on hover. (On the right
    plotly's own buttons would cover it.)"""
    figure.add_annotation(
        name=DETAILS,
        text="<b>(i)</b>",
        hovertext="<br>".join(map(wrap, details)),
        x=0,
        xref="paper",
        xanchor="right",
        xshift=-5,
        y=1,
        yref="paper",
        yanchor="top",
        yshift=figure.layout.margin.t - 9,  # pyright: ignore[reportAttributeAccessIssue]
        font={"size": 13},
        showarrow=False,
    )


def row(rank: int, lane: str) -> str:
    """The name of a timeline's row: for a rank's own lane just the rank."""
    return f"rank {rank}" if lane in OWN_LANES else f"rank {rank} · {short(lane, 16)}"


def done(op: str) -> str:
    """What became of a message's elements where they landed: added, copied, the maximum taken."""
    return DONE.get(op, short(op))
