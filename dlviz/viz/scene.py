"""The pictures of a run's messages as data and in words, without drawing.

    rank 0  |0   |0   |0   |0  3|     a row of cells per rank; a cell holds contributions of ranks,
    rank 1  |0 1 |1   |1   |1   |     decoded from what the buffer held (contributions.py)
                v                     messages in frames, grouped as they happened (frames.py)
    rank 2  |2   |  ...

No algorithm is assumed, so a wrong program shows as it is. Each frame is the state after its
messages landed. plotly, matplotlib and the widgets draw from this one Scene.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.contributions import MAX_RANKS, UNKNOWN, decode, encode, origins, plain
from dlviz.analysis.frames import Frame, event_times, message_frames, watched
from dlviz.analysis.hosts import RankGroup, group_numbers, rank_groups, side_by_side
from dlviz.viz.words import text
from dlviz.viz.words.hosts import message_lines, message_words, short

if TYPE_CHECKING:
    from dlviz.analysis.tiles import CutImage
    from dlviz.trace import Trace

REDUCES = {"max": np.maximum, "min": np.minimum, "product": np.multiply}
RULED = 64  # cells: in a longer buffer only chunks are separated
LINE = 0.5  # of a row: the name of a host or rack over its ranks
UNNAMED = "buffer"  # the name that comm.watch gives a buffer by default


@dataclass(frozen=True)
class CellRange:
    """Neighbouring cells of a rank that hold the same ranks' contributions."""

    rank: int
    low: int  # the first cell
    high: int  # the cell after the last
    counts: list[int]  # of each rank's contribution in one cell; -1 where unknown
    origin: int  # the other cell whose numbers are in the first one; -1 where unknown
    contents: np.ndarray  # as readable numbers

    @property
    def unknown(self) -> bool:
        return self.counts[0] == UNKNOWN

    @property
    def cells(self) -> str:
        return text.cells(self.low, self.high - self.low)

    @property
    def words(self) -> str:
        """Whose contributions the cells hold, in words."""
        return held_by(self.counts, self.origin, self.high - self.low)


def held_by(counts: list[int], origin: int, length: int) -> str:
    """What `length` cells hold, in words: each rank's numbers and how often, or something else."""
    if origin >= 0:
        return f"holds numbers of {text.cells(origin, length)}"
    if UNKNOWN in counts:
        return "holds no sum of contributions"
    held = ", ".join(
        f"rank {rank}" + (f" ×{count}" if count > 1 else "")
        for rank, count in enumerate(counts)
        if count > 0
    )
    return f"holds {held or 'nothing'}"


Cells = tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]  # sent, before, after


@dataclass(frozen=True)
class Scene:
    """The frames of one Trace and what they share: `step` chooses the messages of one step of the
    Trace, `buffer` the watched buffer of that name (by default the first). Reading the frames
    raises ValueError for an unknown buffer."""

    trace: Trace
    step: int | None = None
    buffer: str | None = None

    whole = ""  # what a rank's cells are together, where messages take no ranges of them

    @property
    def image(self) -> CutImage | None:
        """The image that the buffers hold tiles of."""
        return None

    @cached_property
    def frames(self) -> list[Frame]:
        return message_frames(self.trace, step=self.step, buffer=self.buffer)

    @cached_property
    def rows(self) -> list[int]:
        """The ranks drawn, from the top."""
        table = self.trace.messages
        every = {*self.trace.ranks, *table.src.tolist(), *table.dst.tolist()}
        return side_by_side(self.trace, every)

    @cached_property
    def groups(self) -> list[RankGroup]:
        """The ranks drawn by their hosts or racks, where they are in several."""
        return rank_groups(self.trace, self.rows)

    @cached_property
    def place(self) -> dict[int, float]:
        """How far down each rank is, in rows, with a line over each group for its name."""
        group = group_numbers(self.groups)
        lines = {rank: LINE * (1 + group[rank]) if group else 0 for rank in self.rows}
        return {rank: row + lines[rank] for row, rank in enumerate(self.rows)}

    @cached_property
    def group_names(self) -> dict[float, str]:
        """The names of groups, by how far down they are."""
        upper = 0.5 + LINE / 2  # from the middle of a group's first row
        return {self.place[own.ranks[0]] - upper: short(own.name) for own in self.groups}

    @property
    def high(self) -> float:
        """The height of the picture, in rows."""
        return len(self.rows) + LINE * len(self.groups)

    @cached_property
    def arrays(self) -> dict[int, np.ndarray]:
        """The contents of every snapshot that a picture shows, by its place in the buffers."""
        used = {place for frame in self.frames for place in frame.snapshots.values()}
        return {place: self.trace.buffers[place]["array"] for place in sorted(used)}

    @cached_property
    def counts(self) -> dict[int, np.ndarray]:
        """Whose contributions each snapshot's cells hold: (cells, ranks), -1 where unknown."""
        ranks = self.trace.meta["ranks"]
        if ranks > MAX_RANKS:
            unknown = np.full((1, 1), UNKNOWN)
            return {place: unknown.repeat(len(a), 0) for place, a in self.arrays.items()}
        return {place: decode(array, ranks) for place, array in self.arrays.items()}

    @cached_property
    def origins(self) -> dict[int, np.ndarray]:
        """Which other cell's numbers each snapshot's cells hold; -1 where unknown."""
        ranks = self.trace.meta["ranks"]
        return {
            place: np.where(self.counts[place][:, 0] == UNKNOWN, origins(array, ranks), UNKNOWN)
            for place, array in self.arrays.items()
        }

    @property
    def decoded(self) -> bool:
        """Whether `counts` are known of more than wrong cells."""
        return bool(self.arrays) and self.trace.meta["ranks"] <= MAX_RANKS

    @cached_property
    def encoded(self) -> bool:
        """Whether every rank's buffer started as `encode` fills it."""
        few = self.trace.meta["ranks"] <= MAX_RANKS
        return bool(self.arrays) and few and not self._strange

    @cached_property
    def _strange(self) -> list[int]:
        """The ranks whose buffer did not start as `encode` fills it."""
        start = self.frames[0].snapshots
        return [rank for rank, place in start.items() if not self._is_own(rank, place)]

    def shown(self, array: np.ndarray) -> np.ndarray:
        """Contents as readable numbers."""
        return plain(array, self.trace.meta["ranks"]) if self.encoded else array

    def cell(self, value: float) -> str:
        """A cell's contents as text."""
        return number(value)

    def says(self, origin: int, counts: list[int]) -> str:
        """What neighbouring cells hold, in words; `counts` are [] where they differ."""
        if not counts:
            return "holds other contributions in each cell"
        if not self.decoded:
            return "not decoded"
        every = len(counts) > 1 and {*counts} == {1}
        return "holds every rank once" if every else held_by(counts, origin, 1)

    def note(self, place: int) -> tuple[str, bool]:
        """A note on a rank that holds that snapshot, "" for none, and whether it is marked."""
        return "", False

    def carried(self, row: int) -> str:
        """What a message brought, in words; "" where its cells say that."""
        return ""

    @cached_property
    def length(self) -> int:
        """Cells from left to right: the longest buffer, or as far as messages reach."""
        table = self.trace.messages
        reach = (table.offset + table.count)[table.offset >= 0].max(initial=1)
        return max(int(reach), *(len(array) for array in self.arrays.values()), 1)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Where the cells of any message begin or end: cells between two bounds travel together."""
        table = self.trace.messages
        placed = table.offset >= 0
        ends = table.offset[placed] + table.count[placed]
        return np.unique(np.concatenate([[0], table.offset[placed], ends]))

    @cached_property
    def most(self) -> int:
        """The largest number of messages in a picture."""
        return max(len(frame.messages) for frame in self.frames)

    @cached_property
    def strays(self) -> bool:
        return any((self.trace.messages.offset[list(f.messages)] < 0).any() for f in self.frames)

    @cached_property
    def name(self) -> str:
        """The program's name for the buffer; "" where it gave no name or watched none."""
        names = [self.trace.buffers[place]["name"] for place in self.arrays]
        return names[0] if names and names[0] != UNNAMED else ""

    @property
    def title(self) -> str:
        """What the cells are."""
        own = f" {text.short(self.name)}" if self.name else ""
        return f"cells of the watched buffer{own}" if self.arrays else "cells"

    @property
    def beyond(self) -> str:
        """A remark on the messages that run beside the cells."""
        beside = self.strays and self.arrays
        return " (arrows beyond it: not from or to its cells)" if beside else ""

    @property
    def aside(self) -> tuple[float, float]:
        """Where messages run whose cells are in no watched buffer: the left edge and the width."""
        return (1.06 * self.length, 0.12 * self.length) if self.arrays else (0.0, self.length)

    def across(self, frame: Frame) -> list[float]:
        """Where each message's arrow runs: over its cells, side by side with others over them."""
        table = self.trace.messages
        at = [(int(table.offset[row]), int(table.count[row])) for row in frame.messages]
        many, seen, places = Counter(at), Counter(), []
        for cells in at:
            seen[cells] += 1
            low, wide = cells if cells[0] >= 0 else self.aside
            places.append(low + wide * seen[cells] / (many[cells] + 1))
        return places

    @property
    def caveats(self) -> list[str]:
        """Reasons not to take a picture at face value, a sentence each."""
        ranks, names = self.trace.meta["ranks"], {own["name"] for own in self.trace.buffers}
        lines = []
        if ranks > MAX_RANKS:
            shown = "their numbers" if self.arrays else "messages"
            lines.append(
                f"Contributions can be separated for at most {MAX_RANKS} ranks: of {ranks} ranks "
                f"only {shown} are shown."
            )
        elif not self.arrays:
            lines.append("No buffer was watched (comm.watch): only messages are shown.")
        elif self._strange:
            odd = ", ".join(map(str, self._strange))
            lines.append(
                f"The buffer of rank {odd} did not start with the values of viz.encode: the "
                "contributions shown may be wrong."
            )
        if len(names) > 1:
            lines.append(
                f"{len(names)} buffers were watched: a message may have taken or reached the cells "
                "of one that is not shown."
            )
        shown = [row for frame in self.frames for row in frame.messages]
        return [*lines, *message_lines(self.trace, "device", np.array(shown, np.int64))]

    @cached_property
    def known(self) -> list[str]:
        """For each message, how well its two times compare; "" where both are of one host."""
        return message_words(self.trace, "device")

    def _is_own(self, rank: int, place: int) -> bool:
        """Whether a first snapshot holds what `encode` gives this rank, or nothing yet."""
        array = self.arrays[place]
        own = np.array(encode(rank, self.trace.meta["ranks"], len(array))).astype(array.dtype)
        return bool(((array == own) | (array == 0)).all())

    def ranges(self, frame: Frame) -> list[CellRange]:
        """What the ranks hold in a frame, in ranges of cells with equal contributions that travel
        together."""
        ranges = []
        for rank, place in frame.snapshots.items():
            counts, array, origin = self.counts[place], self.arrays[place], self.origins[place]
            bounds = self.bounds[self.bounds < len(array)].tolist()
            edges = sorted({*self.changes(place), *bounds})
            for low, high in zip(edges, [*edges[1:], len(array)], strict=False):
                whose = counts[low].tolist(), int(origin[low])
                ranges.append(CellRange(rank, low, high, *whose, self.shown(array[low:high])))
        return ranges

    def changes(self, place: int) -> list[int]:
        """The cells of a snapshot that differ from the cell before them: they hold other ranks'
        contributions, or the numbers of a cell that is not the next one."""
        counts, origin = self.counts[place], self.origins[place]
        away = np.where(origin < 0, origin, origin - np.arange(len(origin)) + len(origin))
        changed = (counts[1:] != counts[:-1]).any(axis=1) | (away[1:] != away[:-1])
        return (np.flatnonzero(changed) + 1).tolist()

    def moved(self, row: int) -> Cells:
        """The cells of a message: the sender's when it sent, the receiver's before it landed, and
        after (when the receiver went on, if the message landed elsewhere). None where no snapshot
        shows it."""
        sent, before, after = self._landing(row)
        if row in self._elsewhere:
            place = self._elsewhere[row].get(int(self.trace.messages.dst[row]))
            after = None if place is None else self._cells(place, row)
        return sent, before, after

    def op(self, row: int) -> str:
        """What became of a message's elements: the op of its receive, unless the buffers show that
        it landed elsewhere, in a tensor of the receiver's own. Then "sum" if its cells also held
        what was sent when the receiver went on, "copy" if they held just that, else ""."""
        sent, before, after = self.moved(row)
        if row not in self._elsewhere or sent is None or before is None or after is None:
            return str(self.trace.messages.op[row])
        became = {"sum": before + sent, "copy": sent}
        return next((op for op, cells in became.items() if _same(after, cells)), "")

    @cached_property
    def _elsewhere(self) -> dict[int, dict[int, int]]:
        """The messages that landed in no watched cells, each with its frame's snapshots: the cells
        that it might have reached did not change, and did not hold what was sent."""
        found = {}
        for frame in self.frames:
            for row in frame.messages:
                sent, before, after = self._landing(row)
                if self.trace.messages.offset[row] < 0:
                    found[row] = frame.snapshots
                elif sent is not None and before is not None and after is not None:
                    rule = REDUCES.get(self.trace.messages.op[row])
                    if rule is not None and _same(before, rule(before, sent)):
                        continue  # every value there was the larger one, say
                    if sent.any() and _same(before, after) and not _same(before, sent):
                        found[row] = frame.snapshots
        return found

    def _landing(self, row: int) -> Cells:
        """The cells of a message when it was sent, before it landed and right afterwards."""
        table, (sent, received, shots) = self.trace.messages, self._recorded
        none = ([], np.zeros(0))
        (own, own_times), (its, its_times) = (
            shots.get(int(rank), none) for rank in (table.src[row], table.dst[row])
        )
        landed = int(np.searchsorted(its_times, received[row]))  # NaN is after all of them

        def held(places: list[int]) -> np.ndarray | None:
            return self._cells(places[0], row) if places else None

        left = own[: int(np.searchsorted(own_times, sent[row], "right"))][-1:]
        before = its[:landed][-1:] if landed < len(its) else []
        return held(left), held(before), held(its[landed : landed + 1])

    def _cells(self, place: int, row: int) -> np.ndarray | None:
        """What a snapshot holds in the cells of a message; None where it has no such cells."""
        array, table = self.trace.buffers[place]["array"], self.trace.messages
        low, high = int(table.offset[row]), int(table.offset[row] + table.count[row])
        return array[low:high] if 0 <= low and high <= len(array) else None

    @cached_property
    def _recorded(self) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[list[int], np.ndarray]]]:
        """When each message was sent and received, and each rank's snapshots with their times."""
        snapshots = watched(self.trace, self.buffer)
        sent, received, taken = event_times(self.trace, snapshots)
        shots = {
            rank: (places, np.array([taken[place] for place in places]))
            for rank, places in snapshots.items()
        }
        return sent, received, shots

    def sentence(self, row: int) -> str:
        """A message in words: rank 0 → rank 1, cells 4–7, added."""
        table = self.trace.messages
        words = [f"rank {table.src[row]} → rank {table.dst[row]}"]
        if table.offset[row] >= 0:
            words.append(text.cells(int(table.offset[row]), int(table.count[row])))
        never = not np.isfinite(table.received[row])
        return ", ".join([*words, "never received" if never else text.done(self.op(row))])

    def summary(self, frame: Frame) -> str:
        """A frame's messages in short; "" if it has none."""
        rows = list(frame.messages)
        if len(rows) < 2:
            return self.sentence(rows[0]) if rows else ""
        done = " and ".join(dict.fromkeys(text.done(self.op(row)) for row in rows))
        return f"{len(rows)} messages, {done}"

    def losses(self, number: int) -> list[str]:
        """The contributions that ranks lost in a frame, a line for each range of cells: sums that
        are no longer complete and, in a program that sums, single ranks' numbers. If anything was
        lost or odd in any frame, the last one also says how many cells are right."""
        lines = self._losses[number]
        if number < len(self.frames) - 1 or not self.encoded:
            return lines
        if not any(self._losses) and not any(map(self._odd, self.arrays)):
            return lines
        places = self.frames[number].snapshots.values()
        right = [(self.counts[place] == 1).all(axis=1) for place in places]
        many, of = sum(int(own.sum()) for own in right), sum(map(len, right))
        return [*lines, f"in the end {many} of {of} cells hold every rank's numbers once"]

    @cached_property
    def _losses(self) -> list[list[str]]:
        """For each frame, lines that say what was lost in it."""
        found: list[list[str]] = [[] for _ in self.frames]
        pairs = zip(self.frames, self.frames[1:], strict=False) if self.encoded else ()
        for number, (frame, after) in enumerate(pairs, 1):
            for rank, place in after.snapshots.items():
                if not self._is_own(rank, place):  # else the buffer was filled again
                    found[number] += self._lost(rank, frame.snapshots[rank], place)
        return found

    def _lost(self, rank: int, before: int, after: int) -> list[str]:
        old, new = self.counts[before], self.counts[after]
        if len(old) != len(new) or not len(old):
            return []
        gone, lines = (old > 0) & (new <= 0), []
        whole = (old > 0).all(axis=1) & gone.any(axis=1) & (old.shape[1] > 1)
        part = gone.any(axis=1) & (new[:, 0] != UNKNOWN) & self._sums
        lost = np.where(whole, 2, np.where(part, 1, 0))
        cuts = np.flatnonzero(lost[1:] != lost[:-1]) + 1
        edges = sorted({0, *cuts.tolist(), *self.changes(before), *self.changes(after)})
        for low, high in zip(edges, [*edges[1:], len(old)], strict=True):
            if not lost[low]:
                continue
            now = CellRange(
                rank, low, high, new[low].tolist(), int(self.origins[after][low]), new[:0]
            )
            ranks = np.flatnonzero(gone[low]).tolist()
            own = f"the numbers of rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
            what = "the complete sum" if whole[low] else own
            lines.append(f"rank {rank} lost {what} in {now.cells}: it now {now.words}")
        return lines

    @cached_property
    def _sums(self) -> bool:
        """Whether any cell ever holds the contributions of two ranks."""
        return any(((counts > 0).sum(axis=1) > 1).any() for counts in self.counts.values())

    def oddities(self, number: int) -> list[str]:
        """Unexpected contents, a line for each range of cells."""
        frame = self.frames[number]
        found = []
        odd = self.encoded and any(map(self._odd, frame.snapshots.values()))
        for one in self.ranges(frame) if odd else ():
            if one.unknown or max(one.counts) > 1:
                found.append(f"rank {one.rank} {one.words} in {one.cells}")
        for rank, place in frame.snapshots.items() if number else ():
            if any(row in self._elsewhere for row in self._last_received(number, rank)):
                continue  # the program may use such a message as it likes
            changed = self._changed(frame, rank, self.frames[number - 1].snapshots[rank], place)
            edges = np.flatnonzero(np.diff(changed.astype(np.int8), prepend=0, append=0))
            for low, high in edges.reshape(-1, 2).tolist():
                cells = text.cells(low, high - low)
                found.append(f"rank {rank} changed {cells}, which no message of this round reached")
        return found

    def _odd(self, place: int) -> bool:
        """Whether a snapshot holds a contribution twice, or anything but a sum of contributions."""
        counts = self.counts[place]
        return bool(((counts > 1) | (counts < 0)).any())

    def _last_received(self, number: int, rank: int) -> list[int]:
        """The messages that a rank received last, in frame `number` or before it."""
        table = self.trace.messages
        for frame in self.frames[number::-1]:
            if rows := [row for row in frame.messages if table.dst[row] == rank]:
                return rows
        return []

    def _changed(self, frame: Frame, rank: int, before: int, after: int) -> np.ndarray:
        """The cells of a rank that changed though no message of the picture went there."""
        table, old, new = self.trace.messages, self.arrays[before], self.arrays[after]
        if len(old) != len(new):
            return np.zeros(0, bool)
        changed = old != new
        changed &= ~(np.isnan(old) & np.isnan(new))
        for row in frame.messages:
            if table.dst[row] == rank and table.offset[row] >= 0:
                changed[table.offset[row] : table.offset[row] + table.count[row]] = False
        return changed


class OtherContents(Scene):
    """A Scene whose buffers hold something other than what `encode` fills them with."""

    @property
    def encoded(self) -> bool:
        return False

    @property
    def _strange(self) -> list[int]:
        return []


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether cells are equal up to the rounding of a sum."""
    eps = 8 * np.finfo(one.dtype).eps if one.dtype.kind == "f" else 0
    return bool(np.isclose(one, other, rtol=eps, atol=0, equal_nan=True).all())


def number(value: float | None) -> str:
    """A cell's contents as text: whole numbers in full, others with six digits."""
    if value is None or value != value or value in (float("inf"), -float("inf")):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def ops(trace: Trace) -> list[str]:
    """What became of each message's elements, by `Scene.op`."""
    if not trace.buffers:
        return trace.messages.op.tolist()
    scene = Scene(trace)
    return [scene.op(row) for row in range(len(trace.messages))]
