"""MessagePlayer: the messages of a run, round by round, over what every rank's buffer really held.

    who sends to whom      what each rank holds          the arithmetic
        0 --> 1            rank 0 | 1  2 | 15 20 |       rank 1 adds chunk 0 from rank 0
        ^     |            rank 1 | 6 12 | 15 20 |       1 + 5 = 6, 2 + 10 = 12
        3 <-- 2            rank 2 | ...

All of it is a Scene (dlviz/viz/scene.py) written into one JSON text: the frames, the messages in
words with the real contents before and after, and each distinct state of a rank's buffer as what
changed since the one before. Nothing here knows an algorithm: a wrong program shows as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.contributions import UNKNOWN
from dlviz.analysis.hosts import group_numbers
from dlviz.analysis.tiles import CutImage
from dlviz.viz import palette
from dlviz.viz.scene import RULED, Scene, number
from dlviz.viz.scenes import scene_of
from dlviz.viz.tiles import TiledScene
from dlviz.viz.words import text
from dlviz.viz.words.hosts import names_of
from dlviz.widgets.source import sources
from dlviz.widgets.view import View, column, indexed, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dlviz.analysis.frames import Frame
    from dlviz.trace import Trace

GAP = 2  # cells between two tiles of an image
DRAWN = 128  # columns and ranks: of more the first are drawn
LISTED = 4  # cells of a message put in numbers
MOST = 4  # losses of a frame, or oddities of its contents, put in words
VERBS = {
    "sum": "adds", "product": "multiplies its own by", "copy": "copies", "merge": "merges",
    "": "gets",
}  # fmt: skip
DOING = {
    "sum": "adding", "product": "multiplying", "copy": "copying", "merge": "merging",
    "": "delivering",
}  # fmt: skip


class MessagePlayer(View):
    """Go through a run's messages: who sends to whom, what each rank holds, the arithmetic.

    `step` shows the messages of one step of the Trace, `buffer` the watched buffer of that name (by
    default the first). It shows whose contributions a cell holds where each rank filled its buffer
    with `viz.encode` and called `comm.watch` on it before the first message. Where the buffers are
    tiles of an image (dlviz/analysis/tiles.py) it shows them at their places, whose pixel each cell
    holds, and one message after the other. Where a sparse all-reduce summed the watched vector it
    shows the entries that each rank holds, and when it turns dense (dlviz/viz/sparse.py). Raises
    ValueError for a buffer that was not watched, and for a `theme` other than "auto", "light" and
    "dark".
    """

    module = "player/index"

    def __init__(
        self,
        trace: Trace,
        *,
        step: int | None = None,
        buffer: str | None = None,
        title: str | None = None,
        theme: str = "auto",
    ):
        self._scene = scene_of(trace, step, buffer)
        state = player_state(self._scene, title or "Messages, round by round")
        super().__init__(trace, state, theme)

    def picture(self) -> Figure:
        """All rounds side by side; of an image its tiles at the start and in the end."""
        from dlviz.viz.print.messages import panels
        from dlviz.viz.print.tiles import tiles

        theme = "dark" if self.theme == "dark" else "light"
        if isinstance(self._scene, TiledScene):
            return tiles(self._scene, self.title, theme)
        return panels(self._scene, self.title, theme)


def player_state(scene: Scene, title: str) -> dict[str, Any]:
    """All that the front end draws of a scene.

    `columns` are the cells, or in a long buffer the segments that travel together, as [low, high);
    `chunks` groups them by what travels together. A snapshot lists, by column, the places in
    `values` and `holds` that differ from those of the snapshot `of` (-1: of an empty buffer).
    """
    ranks, trace = scene.trace.meta["ranks"], scene.trace
    columns, chunks, remarks = _columns(scene)
    group = group_numbers(scene.groups)
    snapshots, carriers = _Snapshots(scene, columns), _carriers(trace)
    messages = {
        row: _message(scene, row, chunks, carriers)
        for frame in scene.frames
        for row in frame.messages
    }
    phases = _phases(scene, messages)
    frames = [
        {
            "name": frame.name,
            "summary": scene.summary(frame),
            "phase": " and ".join(dict.fromkeys(phases[row] for row in frame.messages)),
            "messages": list(frame.messages),
            "snapshots": [snapshots.place(rank, frame.snapshots) for rank in scene.rows[:DRAWN]],
            "notes": _notes(scene, frame),
            "losses": _few(scene.losses(number)),
            "remarks": _few(scene.oddities(number)),
        }
        for number, frame in enumerate(scene.frames)
    ]
    if not messages:
        remarks.append("No message was sent: there is nothing to step through.")
    if len(scene.rows) > DRAWN:
        remarks.append(f"The first {DRAWN} of {len(scene.rows)} ranks are drawn.")
    styles = [palette.rank_style(rank) for rank in range(ranks if scene.decoded else 0)]
    hatched = {"line": palette.HATCH}
    return {
        "title": text.short(title, 200),
        "lines": [*text.provenance(trace, "device"), *scene.caveats, *remarks],
        "details": text.details(trace, "device"),
        "buffer": text.short(scene.name),
        "rows": scene.rows[:DRAWN],
        "rankGroups": names_of(scene.groups),
        "groupOf": [group.get(rank, -1) for rank in scene.rows[:DRAWN]],
        "topology": text.topology(trace),
        "ranks": [styled(style) | hatched for style in styles],
        "undecoded": styled(palette.UNDECODED) | hatched,
        "image": scene.image and _tiles(scene.image, scene.rows[:DRAWN]),
        "columns": columns,
        "chunks": chunks,
        "values": list(snapshots.values),
        "holds": snapshots.summary,
        "snapshots": snapshots.all,
        "frames": frames,
        "messages": _columned(messages),
        "sources": sources(trace),
    }


def _notes(scene: Scene, frame: Frame) -> list[tuple[str, bool]]:
    """Those on the drawn ranks; [] if there are none."""
    held = (frame.snapshots.get(rank) for rank in scene.rows[:DRAWN])
    notes = [("", False) if place is None else scene.note(place) for place in held]
    return notes if any(note for note, _ in notes) else []


def _tiles(image: CutImage, rows: list[int]) -> dict[str, Any]:
    """The tiles of the drawn ranks; None for a rank without one."""
    apart = image.apart(GAP)
    tiles = {
        rank: {"own": own, "held": image.held[rank], "moved": apart[rank]}
        for rank, own in image.own.items()
    }
    return {"shape": image.shape, "tiles": [tiles.get(rank) for rank in rows]}


def _few(lines: list[str]) -> list[str]:
    return lines[:MOST] + ([f"and {len(lines) - MOST} more"] if len(lines) > MOST else [])


def _columns(scene: Scene) -> tuple[list[list[int]], list[dict[str, Any]], list[str]]:
    """The columns, the chunks as ranges of columns, and what is left out, in words."""
    if scene.whole:
        length = max(map(len, scene.arrays.values()))
        tile = {"label": "", "name": scene.whole, "low": -1, "high": -1, "from": 0, "to": length}
        return [[cell, cell + 1] for cell in range(length)], [tile], []
    length = scene.length if scene.arrays or (scene.bounds > 0).any() else 0
    bounds = [*scene.bounds[scene.bounds < length].tolist(), length]
    edges, what = list(range(length + 1)), "cells"
    if length > RULED:
        changes = (np.flatnonzero((c[1:] != c[:-1]).any(axis=1)) for c in scene.counts.values())
        finer = sorted({*bounds, *(edge + 1 for edges in changes for edge in edges.tolist())})
        edges, what = (finer if len(finer) <= DRAWN else bounds), "chunks"
    columns = [[low, high] for low, high in zip(edges, edges[1:], strict=False)]
    remarks = []
    if len(columns) > DRAWN:
        remarks.append(f"The first {DRAWN} of {len(columns)} {what} are drawn.")
        columns = columns[:DRAWN]
    first = {low: column for column, (low, _) in enumerate(columns)}
    after = {high: column for column, (_, high) in enumerate(columns, 1)}
    last = len(columns)
    chunks = [
        {"label": str(n), "low": low, "high": high, "from": first[low], "to": after.get(high, last)}
        for n, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False))
        if low in first
    ]
    if scene.strays or remarks or not chunks or (scene.trace.messages.count == 0).any():
        chunks.append({"label": "", "low": -1, "high": -1, "from": last, "to": last})
    for chunk in chunks:
        chunk["name"] = _chunk_name(chunk["label"], chunk["label"], len(bounds) - 1)
    if not length:
        chunks[0]["name"] = "no watched buffer"
    return columns, chunks, remarks


def _chunk_name(first: str, last: str, count: int) -> str:
    if not first:
        return "elsewhere"
    if count == 1:
        return "the whole buffer"
    return f"chunk {first}" if first == last else f"chunks {first}–{last}"


class _Snapshots:
    """The distinct states of the ranks' buffers, each as what changed since the one before it."""

    def __init__(self, scene: Scene, columns: list[list[int]]):
        self.scene, self.columns = scene, columns
        wide = [high - low for low, high in columns]
        self._column_of = np.repeat(np.arange(len(columns)), wide)  # of each cell
        self.all: list[dict[str, Any]] = []
        self.values: dict[str, int] = {}
        self.holds: dict[tuple[int, ...], int] = {}
        self.summary: list[dict[str, Any]] = []
        self._places: dict[tuple[int, bytes], int] = {}
        self._last: dict[int, tuple[int, np.ndarray]] = {}

    def place(self, rank: int, snapshots: dict[int, int]) -> int:
        """The place of the rank's state in `all`; -1 where it watched no buffer."""
        if rank not in snapshots:
            return -1
        array = self.scene.arrays[snapshots[rank]]
        key = (rank, array.tobytes())
        if key not in self._places:
            self._places[key] = len(self.all)
            self._add(rank, array, snapshots[rank])
        return self._places[key]

    def _add(self, rank: int, array: np.ndarray, snapshot: int) -> None:
        of, old = self._last.get(rank, (-1, array[:0]))
        self._last[rank] = (len(self.all), array)
        same = len(old) == len(array)
        changed = np.ones(len(array), bool)
        if same:
            changed = (old != array) & ~((old != old) & (array != array))
        at, values, holds = [], [], []
        own = self._column_of[: len(array)]
        shown, counts = self.scene.shown(array), self.scene.counts[snapshot]
        for place in np.unique(own[changed[: len(own)]]).tolist():
            low, high = self.columns[place]
            at.append(place)
            values.append(self.values.setdefault(self._cells(shown[low:high]), len(self.values)))
            origin = int(self.scene.origins[snapshot][low])
            holds.append(self._hold(counts[low:high], origin))
        self.all.append({"of": of if same else -1, "at": at, "values": values, "holds": holds})

    def _hold(self, counts: np.ndarray, origin: int) -> int:
        """The place in `holds` of what a column's cells hold, with the cell it is `from`, if
        another."""
        mixed = (counts != counts[0]).any()
        own = [] if mixed else counts[0].tolist()
        key = (origin, *own)
        if key not in self.holds:
            self.holds[key] = len(self.holds)
            held = [[rank, count] for rank, count in enumerate(own) if count > 0]
            known = not mixed and UNKNOWN not in own
            summary = {"counts": held if known else None, "says": self.scene.says(origin, own)}
            self.summary.append(summary | ({"from": origin} if origin >= 0 else {}))
        return self.holds[key]

    def _cells(self, values: np.ndarray) -> str:
        first = self.scene.cell(values[0].item())
        return first if len(values) == 1 else f"{first} … {self.scene.cell(values[-1].item())}"


def _message(
    scene: Scene,
    row: int,
    chunks: list[dict[str, Any]],
    carriers: dict[tuple[int, int], list[int]],
) -> dict[str, Any]:
    table = scene.trace.messages
    src, dst, low, count = (int(table[name][row]) for name in ("src", "dst", "offset", "count"))
    placed = low >= 0 and count > 0 and not scene.whole

    def where(span: int) -> str:
        return scene.trace.spans.where[span] if span >= 0 else ""

    every = [chunk for chunk in chunks if chunk["label"]]
    taken = [
        place for place, chunk in enumerate(every)
        if placed and chunk["low"] < low + count and low < chunk["high"]
    ]  # fmt: skip
    received = float(table.received[row])
    landed = bool(np.isfinite(received))
    name = scene.carried(row) or "a message"
    if placed:
        edges = scene.bounds[scene.bounds < scene.length]
        first, last = np.searchsorted(edges, [low, low + count - 1], "right") - 1
        name = _chunk_name(str(first), str(last), len(edges))
    ends = carriers.get((row, src), [-1])[0], carriers.get((row, dst), [-1])[-1]
    return {
        "src": src,
        "dst": dst,
        "chunk": taken[0] if taken else len(every),
        "after": taken[-1] + 1 if taken else len(every) + 1,
        "placed": placed,
        "label": re.sub("^chunks? |^the | buffer$", "", name) if placed else "",
        "what": name,
        "nbytes": int(table.nbytes[row]),
        "sent": float(table.sent[row]),
        "received": received if landed else None,
        "known": scene.known[row],
        "sentence": _sentence(scene, row, name, landed),
        "formula": "\n".join(_formula(scene, row, scene.op(row))),
        "sender": ends[0],
        "receiver": ends[1],
        "sentAt": where(ends[0]),
        "receivedAt": where(ends[1]),
    }


def _columned(messages: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """The messages as columns, each text listed once."""
    rows = [{"row": row, **summary} for row, summary in messages.items()]
    columns: dict[str, Any] = {
        name: [summary[name] for summary in rows] for name in (rows[0] if rows else {})
    }
    for name, values in columns.items():
        if isinstance(values[0], str):
            columns[name] = indexed(values)
        elif None not in values:
            columns[name] = column(values)
    return columns


def _sentence(scene: Scene, row: int, what: str, landed: bool) -> str:
    """A message in words: rank 2 adds chunk 1 from rank 1."""
    table = scene.trace.messages
    src, dst, op = int(table.src[row]), int(table.dst[row]), scene.op(row)
    if not landed:
        return f"{what} from rank {src} never reaches rank {dst}"
    if op in ("max", "min"):
        one = "larger" if op == "max" else "smaller"
        return f"rank {dst} compares {what} from rank {src} with its own and keeps the {one}"
    verb = VERBS.get(op, "gets")
    how = "" if op in VERBS else f" ({text.short(op)})"
    return f"rank {dst} {verb} {what} from rank {src}{how}"


def _formula(scene: Scene, row: int, op: str) -> list[str]:
    """The arithmetic of a message's first cells, in the numbers that the buffers held."""
    sent, before, after = scene.moved(row)
    if scene.whole or (sent is None and after is None):
        return []
    nothing = [None] * LISTED
    parts = (sent, before, after)
    held = [nothing if part is None else part[:LISTED].tolist() for part in parts]
    summary = [
        nothing if part is None else [*map(number, scene.shown(part[:LISTED]).tolist())]
        for part in parts
    ]
    kind = next(part.dtype for part in (after, sent) if part is not None)
    eps = 8 * float(np.finfo(kind).eps) if kind.kind == "f" else 0.0
    cells = zip(zip(*held, strict=False), zip(*summary, strict=False), strict=False)
    lines = [_became(*cell, op, eps) for cell in cells]
    return [*lines, "…"] if scene.trace.messages.count[row] > LISTED else lines


def _became(held: tuple[Any, ...], summary: tuple[Any, ...], op: str, eps: float) -> str:
    """One cell of a message in numbers: what was sent, what was there before and after. `summary`
    is the same as text, `eps` the relative error of a sum."""
    (sent, before, after), (s, b, a) = held, summary
    if sent is None or before is None or after is None:
        return f"{s} was sent" if sent is not None else f"{a} now"
    if op in ("max", "min") and _equal(after, (max if op == "max" else min)(before, sent), eps):
        return f"{op}({b}, {s}) = {a}"
    if op == "product" and _equal(after, before * sent, eps):
        return f"{b} × {s} = {a}"
    if op != "copy" and _equal(after, before + sent, eps):
        return f"{b} + {s} = {a}"
    became = f"{b} stays {a}" if _equal(after, before, 0.0) else f"{b} becomes {a}"
    return became if op != "sum" and _equal(after, sent, eps) else f"{became}; {s} was sent"


def _equal(one: float, other: float, eps: float) -> bool:
    return one == other or (one != one and other != other) or abs(one - other) <= eps * abs(other)


def _carriers(trace: Trace) -> dict[tuple[int, int], list[int]]:
    """The rows of the spans that carry each message on each rank: {(message, rank): rows}."""
    found: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(trace.spans.flow >= 0).tolist():
        key = (int(trace.spans.flow[row]), int(trace.spans.rank[row]))
        found.setdefault(key, []).append(row)
    return found


def _phases(scene: Scene, messages: dict[int, dict[str, Any]]) -> dict[int, str]:
    """The phase of each message: the innermost `phase` span in which it was sent (the later of two
    that touch at that moment), else what its receiver does with it."""
    spans = scene.trace.spans
    begun, done = spans.start, spans.end
    rows = np.flatnonzero(spans.kind == "phase")
    rank, lane, start, end = spans.rank[rows], spans.lane[rows], begun[rows], done[rows]
    phases = {}
    for message, summary in messages.items():
        span = summary["sender"]
        around = np.flatnonzero(
            (rank == spans.rank[span])
            & (lane == spans.lane[span])
            & (start <= begun[span])
            & (end >= done[span])
        ) if span >= 0 else rows[:0]  # fmt: skip
        op = scene.op(message)
        phases[message] = DOING.get(op, text.short(op))
        if len(around):
            inner = rows[around[np.lexsort((start[around], spans.depth[rows[around]]))[-1]]]
            phases[message] = text.short(spans.name[inner] or "phase", 60)
    return phases
