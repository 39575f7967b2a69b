"""The words in figures: names made safe to show, times and sizes with their units, the subtitle
that says which clock.

plotly reads a part of HTML, and TeX between dollar signs, in every text it draws. A name that a
program gave to a span is shown as it is written, so it passes through `clean`, `cut` or `wrap`
before it gets into a figure.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable
from typing import Any

OWN_LANES = ("compute", "main", "")  # lanes that bear their rank's own name
UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
LINE = 88  # characters of a subtitle's line
MACHINE = 120  # characters that a machine's name may take of it
TIMES = {"wall": "wall-clock time", "device": "device time"}


def clean(text: object) -> str:
    """The text on one line, with whatever plotly would take for markup or TeX shown as written."""
    flat = re.sub(r"[\s\x00-\x1f]+", " ", str(text)).strip()
    return html.escape(flat, quote=False).replace("$", "&#36;")


def short(text: object, width: int = 24) -> str:
    """The text on one line of at most `width` characters, as it is written."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def cut(text: object, width: int = 24) -> str:
    """The text in at most `width` characters, for a label of plotly's."""
    return clean(short(text, width))


def wrap(text: object, width: int = 64) -> str:
    """The whole text, broken into lines of at most `width` characters, for a hover label."""
    flat = " ".join(str(text).split())
    return "<br>".join(map(clean, textwrap.wrap(flat, width))) if len(flat) > width else clean(flat)


def unit(span: float) -> tuple[str, float]:
    """The unit, and its seconds, in which an axis `span` seconds long is read best."""
    return next(((name, size) for name, size in UNITS if span >= 2 * size), UNITS[-1])


def moment(value: float, name: str, size: float) -> str:
    """A time in the unit of an axis, to the microsecond or better: 12.400 ms."""
    return f"{value / size:.{6 if name == 's' else 3}f} {name}"


def seconds(value: float) -> str:
    """A duration in words: 3.1 ms."""
    name, size = next(
        ((n, s) for n, s in UNITS if abs(value) >= 0.9995 * s),  # 0.9996 ms is 1 ms
        UNITS[-1] if value else UNITS[1],
    )
    return (
        f"{value / size:.3g} {name}" if abs(value) < 1000 * size else f"{value / size:,.0f} {name}"
    )


def nbytes(value: int) -> str:
    """A size in words: 4.0 KiB."""
    size = float(value)
    for name in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return (
                f"{value} {'byte' if value == 1 else 'bytes'}"
                if name == "bytes"
                else f"{size:.1f} {name}"
            )
        size /= 1024
    return f"{size:.1f} GiB"


def cells(offset: int, count: int) -> str:
    """Elements of a buffer in words: cells 4–7."""
    return f"cell {offset}" if count == 1 else f"cells {offset}–{offset + count - 1}"


def provenance(trace: Any, clock: str, width: int = LINE) -> list[str]:
    """What a figure says of its Trace: the clock it bears, the machine, lateness, outcome and
    warning; in lines of at most `width` characters."""
    meta = trace.meta
    born = meta.get("clock", "")
    machine = textwrap.shorten(str(meta.get("machine", "")), MACHINE, placeholder=" …")
    says = {
        "wall": f"wall clock: what {machine or 'this machine'} took",
        "paced": "paced: a real run whose times are those of a modelled machine",
        "simulated": "simulated: what the cost model says",
    }.get(born, "clock not stated")
    if born == "paced" and clock == "wall":
        says = "wall clock of a paced run: a modelled machine's times as this machine kept them"
    parts = [says]
    if machine and born != "wall":
        parts.append(machine)
    if born == "paced" and meta.get("lateness"):
        late = meta["lateness"]
        parts.append(
            f"late by {seconds(late['median'])} in the median, {seconds(late['worst'])} at worst"
        )
    lines = textwrap.wrap(" · ".join(parts), width)
    if meta.get("outcome") == "failed":
        lines.append("The run failed: what was recorded until then is shown.")
    elif meta.get("outcome") == "unreceived":
        lines.append("Some messages were never received.")
    if meta.get("warning"):
        lines += textwrap.wrap(f"Warning: {meta['warning']}", width)
    return lines


def topology(trace: Any) -> dict[str, Any]:
    """How the ranks are joined: {"kind": "switch", "ring", "racks" or "tree", "sizes": ranks in a
    group, level by level}. Kind "" where the Trace does not say."""
    outline = trace.meta.get("topology")
    ranks = max(trace.meta["ranks"], 1)
    return outline if isinstance(outline, dict) else {"kind": "", "sizes": [ranks]}


def subtitle(trace: Any, clock: str) -> str:
    """The same as the subtitle of a plotly figure."""
    return "<br>".join(map(clean, provenance(trace, clock)))


def heading(title: str, below: str) -> dict[str, Any]:
    """A figure's title and the subtitle below it, and the top margin that holds them."""
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


def lanes(names: Iterable[str]) -> list[str]:
    """Lanes in the order in which they are drawn: a rank's own first."""
    return sorted(set(names), key=lambda name: (name not in OWN_LANES, name))


def row(rank: int, lane: str) -> str:
    """The name of a timeline's row: a rank's own lane bears the rank's name alone."""
    return f"rank {rank}" if lane in OWN_LANES else f"rank {rank} · {short(lane, 16)}"


def done(op: str) -> str:
    """What became of a message's elements where they landed: added, copied, the larger kept."""
    words = {"add": "added", "copy": "copied", "max": "larger kept", "": "delivered"}
    return words.get(op, short(op))
