"""A schedule drawn by hand: actions on a grid of ranks and slots of time, and what is said of them.

    slot     0   1   2   3   4   5
    rank 0  |0F0|0F1|...|...|0B0----|     0B0 may start at slot 4, where 1B0 has ended;
    rank 1      |1F0|1B0----|               until then rank 0 waits, or chose not to run 0F2

An action starts where it was put. One that breaks a rule is kept and its fault told; it settles
once that is mended. Which actions another one needs says `rules.needs`. A slot is the longest time
of which every cost is a multiple, so an action lasts whole slots.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, Protocol

from dlviz.schedules.action import KINDS, Action, overlap, parse
from dlviz.schedules.rules import (
    EXCLUDES,
    ScheduleError,
    check_actions,
    check_progress,
    is_overlap,
    needs,
)
from dlviz.schedules.schedule import Schedule, rows_of

BACKWARDS = {"whole": "FB", "split": "FIW", "either": "FBIW", "none": "F"}
LONGEST = 60  # slots of an action
LARGEST = 1024  # visits of a microbatch to a stage
NEVER = math.inf
_LISTED = 3  # actions in a sentence


class Lasting(Protocol):
    """How long an action takes, and a message between two ranks: `dlviz.Costs` is one."""

    @property
    def latency(self) -> float: ...

    def seconds(self, action: Action) -> float: ...


@dataclass(frozen=True)
class Pipeline:
    """What a schedule is drawn for.

    `stage_rank[stage]` is the rank of a stage. `backward` says what is offered for each forward:
    "whole" (B), "split" (I and W), "either" or "none"; `overlaps`, whether two may be drawn as one
    overlap. `limit` is how many microbatches (of a stage) a rank may hold, None: as many as it
    likes. Raises ValueError for a size, a word or costs that cannot be drawn.
    """

    stage_rank: tuple[int, ...]
    microbatches: int
    costs: Lasting
    backward: str = "whole"
    limit: int | None = None
    overlaps: bool = False

    def __post_init__(self) -> None:
        for name, value in self._counts().items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r} has to be a whole number, 1 or more.")
        if self.backward not in BACKWARDS:
            raise ValueError(
                f"backward={self.backward!r} is unknown: use one of {', '.join(BACKWARDS)}."
            )
        if not self.stage_rank or {*self.stage_rank} != {*range(self.ranks)}:
            raise ValueError(
                f"stage_rank={self.stage_rank}: each of the ranks 0 to {self.ranks - 1} has to "
                "have a stage."
            )
        if self.stages * self.microbatches > LARGEST:
            raise ValueError(
                f"{self.stages} stages and microbatches={self.microbatches} are too many to draw: "
                f"their product may be {LARGEST} at most."
            )
        _ = self.slot

    def _counts(self) -> dict[str, int]:
        counts = {"microbatches": self.microbatches}
        return counts if self.limit is None else {**counts, "limit": self.limit}

    @property
    def ranks(self) -> int:
        return max(self.stage_rank, default=0) + 1

    @property
    def stages(self) -> int:
        return len(self.stage_rank)

    @property
    def chunks(self) -> int:
        """The most stages that a rank holds."""
        return max(map(self.stage_rank.count, range(self.ranks)))

    @property
    def held(self) -> str:
        """What a rank holds, in words: a chunk counts by itself."""
        return "microbatches" if self.stages == self.ranks else "chunks"

    @property
    def kinds(self) -> str:
        """The kinds of action that are offered."""
        return BACKWARDS[self.backward]

    @cached_property
    def slot(self) -> Fraction:
        """The seconds of a slot."""
        each = [Action(stage, kind, 0) for stage in range(self.stages) for kind in self._possible]
        if self.backward != "none":
            each += [overlap(Action(s, "F", 0), Action(s, "B", 1)) for s in range(self.stages)]
        times = {action: _fraction(self.costs.seconds(action)) for action in each}
        for action, seconds in times.items():
            if not seconds:
                raise ValueError(
                    f"{action} takes no time and cannot be drawn: give it a cost above 0."
                )
        latency = _fraction(self.costs.latency)
        parts = math.lcm(*(time.denominator for time in (latency, *times.values())))
        slot = Fraction(
            math.gcd(*(int(time * parts) for time in (latency, *times.values()))), parts
        )
        longest = int(max(latency, *times.values()) / slot)
        if longest > LONGEST:
            raise ValueError(
                f"these costs are multiples of {float(slot):g} s only, so one action would take "
                f"{longest} slots; at most {LONGEST} can be drawn: use rounder costs."
            )
        return slot

    @cached_property
    def latency(self) -> int:
        """The slots that a message takes."""
        return int(_fraction(self.costs.latency) / self.slot)

    def slots(self, action: Action) -> int:
        """How many slots `action` lasts."""
        if action.parts:
            return int(_fraction(self.costs.seconds(action)) / self.slot)
        return self._slots[action.stage, action.kind]

    @cached_property
    def _slots(self) -> dict[tuple[int, str], int]:
        return {
            (stage, kind): int(_fraction(self.costs.seconds(Action(stage, kind, 0))) / self.slot)
            for stage in range(self.stages)
            for kind in self._possible
        }

    @property
    def _possible(self) -> Iterable[str]:
        return "F" if self.backward == "none" else KINDS

    @cached_property
    def horizon(self) -> int:
        """A slot by which all would be done, one action and one message after another."""
        once = sum(self._slots.values()) + 2 * self.stages * self.latency
        return once * self.microbatches

    def chunk(self, stage: int) -> int:
        """The place of a stage among those of its rank."""
        return self.stage_rank[:stage].count(self.stage_rank[stage])

    def rank_of(self, action: Action) -> int:
        """The rank on which `action` has to run."""
        return self.stage_rank[action.halves[0].stage]

    def offering(self, schedule: Schedule) -> Pipeline:
        """The pipeline that offers all that `schedule` is made of."""
        backward, overlaps = _made_of(schedule)
        if {*BACKWARDS[backward]} <= {*self.kinds}:
            backward = self.backward
        return replace(self, backward=backward, overlaps=self.overlaps or overlaps)


class Placed(NamedTuple):
    """An action that starts on `rank` at `slot`."""

    action: Action
    rank: int
    slot: int


class Fault(NamedTuple):
    """Why an action may not be where it is, and what would mend it, each as a sentence.

    `law` is "rank" (the stage lives elsewhere), "twice", "together" (two in one slot), "needs" (it
    has not got what it needs) or "memory".
    """

    placed: Placed
    law: str
    words: str
    mend: str


class Ghost(NamedTuple):
    """An action that may come next, where it could start first. `lead`: of those of its stage and
    kind it could be the first, with the lowest microbatch."""

    placed: Placed
    lead: bool


class Idle(NamedTuple):
    """A rank that does nothing from slot `start` up to `end`.

    `cause` is "done" (nothing is left), "waiting" (for the actions in `actions`), or "choice"
    (`actions` could have run).
    """

    rank: int
    start: int
    end: int
    cause: str
    actions: tuple[Action, ...]
    words: str


class Score(NamedTuple):
    """What a drawing comes to: slots from the first start to the last end, their bubble ratio (idle
    / busy), the microbatches (of a stage) that each rank holds at most, and the idle slots that the
    rank with most of them has between its first action and its last."""

    slots: int
    ratio: float
    peak: tuple[int, ...]
    inside: int


@dataclass(frozen=True)
class Drawing:
    """A schedule, drawn in part or whole: what was put where, in that order."""

    pipeline: Pipeline
    placed: tuple[Placed, ...] = ()

    def place(self, action: Action, rank: int, slot: int) -> Drawing:
        """With `action` at `slot` of `rank`, legal or not. Raises ValueError for what the pipeline
        does not have, and for what is there already."""
        new = Placed(action, rank, slot)
        self._check_inside(new)
        if new in self.placed:
            raise ValueError(
                f"{action} is already at slot {slot} of rank {rank}: choose another slot."
            )
        return replace(self, placed=(*self.placed, new))

    def add(self, action: Action) -> Drawing:
        """With `action` on its own rank, at its first legal slot; where it has none yet, behind
        what is drawn of that rank. Raises ValueError as `place` does."""
        self._check_inside(Placed(action, 0, 0))
        rank, slot = self.pipeline.rank_of(action), self.grid.earliest(action)
        if slot is None:
            slot = max((end for _, end in self.grid.busy[rank]), default=0)
        return self.place(action, rank, slot)

    def remove(self, placed: Placed) -> Drawing:
        """Without what was `placed`. Raises ValueError where it is not there."""
        if placed not in self.placed:
            action, rank, slot = placed
            raise ValueError(
                f"{action} is not at slot {slot} of rank {rank}, so it cannot be removed."
            )
        return replace(self, placed=tuple(one for one in self.placed if one != placed))

    def move(self, placed: Placed, rank: int, slot: int) -> Drawing:
        """With what was `placed` on another rank or at another slot."""
        return self.remove(placed).place(placed.action, rank, slot)

    def cleared(self) -> Drawing:
        return replace(self, placed=())

    def on(self, pipeline: Pipeline) -> Drawing:
        """The same on another pipeline, such as one of other costs: its order at the earliest times
        or, where there is a fault, its slots. Raises ValueError for a pipeline of another size."""
        for name in ("stage_rank", "microbatches"):
            ours, theirs = getattr(self.pipeline, name), getattr(pipeline, name)
            if ours != theirs:
                raise ValueError(
                    f"{name}={theirs}, but the drawing has {ours}: start a new drawing."
                )
        if self.faults:
            return replace(self, pipeline=pipeline)
        return laid_out(self.schedule(), pipeline)

    def tightened(self) -> Drawing:
        """The same order at the earliest times. Raises ScheduleError where there is a fault."""
        return laid_out(self.schedule(), self.pipeline)

    @cached_property
    def complete(self) -> bool:
        """Whether all there is to run is drawn, faults or not."""
        return not any(True for _ in self.left())

    @cached_property
    def end(self) -> int:
        """The slot at which the last action has ended."""
        return max((self.ends(one) for one in self.placed), default=0)

    def ends(self, placed: Placed) -> int:
        return placed.slot + self.pipeline.slots(placed.action)

    @cached_property
    def grid(self) -> Grid:
        return Grid(self.pipeline, self.placed)

    @cached_property
    def where(self) -> dict[Action, Placed]:
        """Where each action was put first, the halves of an overlap each for itself."""
        found: dict[Action, Placed] = {}
        for placed in self.placed:
            for half in placed.action.halves:
                found.setdefault(half, placed)
        return found

    def left(self) -> Iterator[Action]:
        """The actions that are not drawn; where a B or an I and W may be, both ways are named."""
        for stage in range(self.pipeline.stages):
            for microbatch in range(self.pipeline.microbatches):
                each = {kind: Action(stage, kind, microbatch) for kind in KINDS}
                have = {kind for kind, action in each.items() if action in self.where}
                kinds = self.pipeline.kinds
                if "B" in have:
                    kinds = "F"
                elif have & {"I", "W"}:
                    kinds = "FIW"
                yield from (each[kind] for kind in kinds if kind not in have)

    def rows(self) -> list[list[Action]]:
        """The actions of each rank in the order of their slots."""
        rows: list[list[Action]] = [[] for _ in range(self.pipeline.ranks)]
        for action, rank, _ in sorted(self.placed, key=lambda one: one.slot):
            rows[rank].append(action)
        return rows

    def schedule(self) -> Schedule:
        """The drawing as a Schedule, which may be a part of one (`whole` says what is missing).

        Raises ScheduleError where a fault is drawn.
        """
        if self.faults:
            (action, rank, slot), _, words, mend = self.faults[0]
            row = [placed for placed in self.placed if placed.rank == rank]
            index = sum(placed.slot < slot for placed in row)
            raise ScheduleError(f"{words} {mend}", rank, index)
        return Schedule(self.rows(), self.pipeline.stage_rank, "drawn")

    def whole(self) -> Schedule:
        """The drawing as a Schedule that is complete, legal and checked. Raises ScheduleError."""
        schedule = self.schedule()
        for action in self.left():
            rank = self.pipeline.rank_of(action)
            raise ScheduleError(
                f"{action} of rank {rank} is not drawn yet: draw this action too.", rank
            )
        schedule.check()
        return schedule

    def to_csv(self) -> str:
        """The rows as torch.distributed.pipelining's compute-only CSV: the order, no slots."""
        return Schedule(self.rows(), self.pipeline.stage_rank).to_csv()

    @cached_property
    def faults(self) -> list[Fault]:
        """The rules that are broken; of two actions in each other's way the one put last."""
        order = {placed: number for number, placed in enumerate(self.placed)}
        found = [
            *self._misplaced(), *self._twice(), *self._together(order), *self._unmet(),
            *self._overfull(),
        ]  # fmt: skip
        return sorted(found, key=lambda fault: order[fault.placed])

    @cached_property
    def ghosts(self) -> list[Ghost]:
        """All that may come next, at the earliest slot at which it is legal."""
        found = [
            Placed(action, self.pipeline.rank_of(action), slot)
            for action in self.left()
            if (slot := self.grid.earliest(action)) is not None
        ]
        leads: dict[tuple[int, str], Placed] = {}
        for placed in found:
            first = leads.setdefault((placed.action.stage, placed.action.kind), placed)
            if placed.slot < first.slot:
                leads[placed.action.stage, placed.action.kind] = placed
        in_front = {*leads.values()}
        both = self._overlaps([*leads.values()]) if self.pipeline.overlaps else ()
        return [*(Ghost(placed, placed in in_front) for placed in found), *both]

    @cached_property
    def idle(self) -> list[Idle]:
        """All idle time from the first start to the last end, by its cause."""
        first = min((placed.slot for placed in self.placed), default=0)
        left = [*self.left()]
        found = []
        for rank in range(self.pipeline.ranks):
            mine = [one for one in left if self.pipeline.rank_of(one) == rank]
            found += self._idle_of(rank, mine, first)
        return found

    @cached_property
    def score(self) -> Score:
        """What the drawing, as far as it goes, comes to; only a legal one comes to anything."""
        first = min((placed.slot for placed in self.placed), default=0)
        work = sum(self.pipeline.slots(placed.action) for placed in self.placed)
        ratio = (self.end - first) * self.pipeline.ranks / work - 1 if work else 0.0
        peak = tuple(
            max((held for _, held in self._holding(rank)), default=0)
            for rank in range(self.pipeline.ranks)
        )
        rows = [row for row in self.grid.busy if row]
        inside = max(
            (row[-1][1] - row[0][0] - sum(end - start for start, end in row) for row in rows),
            default=0,
        )
        return Score(self.end - first, ratio, peak, inside)

    def _check_inside(self, placed: Placed) -> None:
        pipeline, (action, rank, slot) = self.pipeline, placed
        if action.parts and not is_overlap(action):
            raise ValueError(f"{action} is no overlap: an overlap is one forward and one backward.")
        for half in action.halves:
            if half.stage not in range(pipeline.stages):
                law = f"the stages are 0 to {pipeline.stages - 1}"
            elif half.microbatch not in range(pipeline.microbatches):
                law = f"the microbatches are 0 to {pipeline.microbatches - 1}"
            elif half.kind not in KINDS or (pipeline.backward == "none" and half.kind != "F"):
                law = "this pipeline runs forwards only" if half.kind in KINDS else "no such kind"
            else:
                continue
            raise ValueError(f"{half} cannot be drawn: {law}.")
        if rank not in range(pipeline.ranks):
            raise ValueError(
                f"rank {rank} does not exist: the ranks are 0 to {pipeline.ranks - 1}."
            )
        if slot not in range(pipeline.horizon):
            raise ValueError(
                f"slot {slot} is off the grid: the slots are 0 to {pipeline.horizon - 1}."
            )

    def _misplaced(self) -> Iterator[Fault]:
        for placed in self.placed:
            for half in placed.action.halves:
                home = self.pipeline.stage_rank[half.stage]
                if home != placed.rank:
                    words = (
                        f"{_at(placed)} is on the wrong rank: stage {half.stage} is on rank {home}."
                    )
                    mend = f"Move {placed.action} to the row of rank {home}."
                    yield Fault(placed, "rank", words, mend)
                    break

    def _twice(self) -> Iterator[Fault]:
        seen: dict[Action, Placed] = {}
        for placed in self.placed:
            for half in placed.action.halves:
                others = (half._replace(kind=kind) for kind in EXCLUDES[half.kind])
                other = next((one for one in others if one in seen), None)
                if other is not None:
                    _, rank, slot = seen[other]
                    words = (
                        f"{_at(placed)} is drawn twice: the other is at slot {slot} of rank {rank}."
                    )
                    if other != half:
                        words = f"{_at(placed)} repeats work of {other}: a B consists of I and W."
                    yield Fault(placed, "twice", words, "Remove one of the two.")
                seen.setdefault(half, placed)

    def _together(self, order: dict[Placed, int]) -> Iterator[Fault]:
        for rank in range(self.pipeline.ranks):
            row = sorted((one for one in self.placed if one.rank == rank), key=lambda one: one.slot)
            told: set[Placed] = set()
            running: list[Placed] = []
            for placed in row:
                running = [one for one in running if self.ends(one) > placed.slot]
                for one in running:
                    first, last = sorted((one, placed), key=order.__getitem__)
                    if last not in told:
                        told.add(last)
                        shared = max(one.slot, placed.slot)
                        yield Fault(
                            last,
                            "together",
                            f"{_at(last)} shares slot {shared} with {first.action}: a rank runs "
                            "one action at a time.",
                            self._move_there(last),
                        )
                running.append(placed)

    def _unmet(self) -> Iterator[Fault]:
        for placed in self.placed:
            for choice, arrival in self.grid.arrivals(placed.action):
                if arrival <= placed.slot:
                    continue
                need = self._meant(choice)
                words = (
                    f"{_at(placed)} needs {need} of rank {self.pipeline.rank_of(need)}, which is "
                )
                if arrival == NEVER:
                    yield Fault(placed, "needs", f"{words}not drawn.", self._draw(need, placed))
                else:
                    words += f"there only from slot {arrival} on."
                    yield Fault(placed, "needs", words, self._move_there(placed, need))

    def _overfull(self) -> Iterator[Fault]:
        limit = self.pipeline.limit
        if limit is None:
            return
        for rank in range(self.pipeline.ranks):
            for placed, held in self._holding(rank):
                if held > limit:
                    yield Fault(
                        placed,
                        "memory",
                        f"{_at(placed)} makes rank {rank} hold {held} {self.pipeline.held}; the "
                        f"limit is {limit}.",
                        f"Run a {'B' if 'B' in self.pipeline.kinds else 'W'} of rank {rank} before "
                        f"{placed.action}.",
                    )

    def _holding(self, rank: int) -> list[tuple[Placed, int]]:
        """Each forward of a rank, and how many microbatches the rank holds once it starts."""
        forwards, releases = [], []
        trained = self.pipeline.backward != "none"
        for placed in self.placed:
            for half in placed.action.halves:
                if placed.rank != rank:
                    continue
                if half.kind == "F":
                    forwards.append(placed)
                if half.kind in "BW" or not trained:
                    releases.append(self.ends(placed))
        forwards.sort(key=lambda placed: placed.slot)
        releases.sort()
        return [
            (placed, number - bisect_right(releases, placed.slot))
            for number, placed in enumerate(forwards, 1)
        ]

    def _meant(self, choice: tuple[Action, ...]) -> Action:
        """Of the actions any of which would do, the drawn one or, without one, the one offered."""
        drawn = [one for one in choice if one in self.where]
        return [*drawn, *(one for one in choice if one.kind in self.pipeline.kinds), *choice][0]

    def _draw(self, need: Action, placed: Placed) -> str:
        """How a need that is not drawn could be there in time."""
        rank = self.pipeline.rank_of(need)
        by = placed.slot - (self.pipeline.latency if rank != placed.rank else 0)
        if by < self._soonest(need):
            return f"Draw {need} on rank {rank}, and move {placed.action} behind {need}."
        return f"Draw {need} on rank {rank} so that {need} ends by slot {by}."

    def _soonest(self, wanted: Action) -> int:
        """The slot by which `wanted` can have ended at the soonest, beside what is drawn."""
        pipeline, there, ends = self.pipeline, self.grid.there, dict[Action, int]()
        stages = range(pipeline.stages)
        for kinds, order in (("F", stages), ("BI", stages[::-1])):
            for one in (Action(s, kind, wanted.microbatch) for s in order for kind in kinds):
                if one in there or one.kind in pipeline.kinds or one == wanted:
                    ends[one] = there.get(one) or self._begun(one, ends) + pipeline.slots(one)
        return ends[wanted]

    def _begun(self, one: Action, ends: dict[Action, int]) -> int:
        """The slot at which `one` can start where what it needs ends as in `ends`."""
        pipeline, rank = self.pipeline, self.pipeline.rank_of(one)
        starts = [0]
        for choice in needs(one, pipeline.stages):
            far = pipeline.stage_rank[choice[0].stage] != rank
            soonest = min(ends[each] for each in choice if each in ends)
            starts.append(soonest + (pipeline.latency if far else 0))
        return max(starts)

    def _move_there(self, placed: Placed, need: Action | None = None) -> str:
        slot = Grid(self.pipeline, self.remove(placed).placed).earliest(placed.action)
        if slot is None:
            return f"Draw what {placed.action} needs, and move {placed.action} behind that."
        earlier = f", or move {need} to an earlier slot" if need else ""
        return f"Move {placed.action} to slot {slot}{earlier}."

    def _overlaps(self, leads: list[Placed]) -> Iterator[Ghost]:
        forwards = [placed for placed in leads if placed.action.kind == "F"]
        for one in forwards:
            for other in leads:
                both = overlap(one.action, other.action)
                if other.rank == one.rank and is_overlap(both):
                    slot = self.grid.earliest(both)
                    if slot is not None:
                        yield Ghost(Placed(both, one.rank, slot), True)

    def _idle_of(self, rank: int, left: list[Action], first: int) -> Iterator[Idle]:
        """The idle time of a rank on which the actions of `left` are not drawn."""
        grid, rank_of = self.grid, self.pipeline.rank_of
        starts = {half: one.slot for half, one in self.where.items() if rank_of(half) == rank}
        ready = {one: grid.ready(one) for one in (*starts, *left)}
        left = sorted(left, key=ready.__getitem__)
        at = first
        for start, end in [*grid.busy[rank], (self.end, self.end)]:
            if start > at:
                ahead = [one for one, slot in starts.items() if slot >= start]
                ahead.sort(key=starts.__getitem__)
                yield from self._gap(rank, at, start, [*ahead, *left], ready)
            at = max(at, end)

    def _gap(
        self, rank: int, at: int, end: int, ahead: list[Action], ready: dict[Action, float]
    ) -> Iterator[Idle]:
        """A stretch of idle time with what is ahead of the rank, cut where one of that may run."""
        full = self.pipeline.limit is not None and self.grid.held(rank, at) >= self.pipeline.limit
        free = [one for one in ahead if not (full and one.kind == "F")]
        cuts = sorted({at, end, *(int(ready[one]) for one in free if at < ready[one] < end)})
        for start, stop in zip(cuts, cuts[1:], strict=False):
            able = tuple(one for one in free if ready[one] <= start)
            if not ahead:
                yield Idle(rank, start, stop, "done", (), "this rank has nothing left to run")
            elif able:
                words = f"your choice: {_list(able)} could have run here"
                yield Idle(rank, start, stop, "choice", able, words)
            else:
                yield Idle(rank, start, stop, "waiting", *self._waited_for(rank, start, free))

    def _waited_for(
        self, rank: int, now: int, ahead: list[Action]
    ) -> tuple[tuple[Action, ...], str]:
        """What a rank waits for that can run none of what is ahead: the message for the first of
        that, or for what that needs of its own rank."""
        limit, rank_of = self.pipeline.limit, self.pipeline.rank_of
        need, slot = next(iter(ahead), None), NEVER
        while need and (unmet := [one for one in self.grid.arrivals(need) if one[1] > now]):
            choice, slot = max(unmet, key=lambda one: rank_of(one[0][0]) != rank)
            need = self._meant(choice)
            if rank_of(need) != rank:
                break
        if need is None or (limit is not None and rank_of(need) == rank):
            return (), f"waiting for memory: the rank holds {limit} {self.pipeline.held}, its limit"
        when = "which is not drawn" if slot == NEVER else f"which is there from slot {slot} on"
        return (need,), f"waiting for {need} of rank {rank_of(need)}, {when}"


@dataclass(frozen=True)
class History:
    """A drawing, those before it and those that were undone."""

    present: Drawing
    past: tuple[Drawing, ...] = ()
    future: tuple[Drawing, ...] = ()

    def did(self, drawing: Drawing) -> History:
        """With `drawing` as the present one; nothing where it is the same."""
        if drawing == self.present:
            return self
        return History(drawing, (*self.past, replace(self.present)))  # without what it worked out

    def undo(self) -> History:
        if not self.past:
            return self
        return History(self.past[-1], self.past[:-1], (self.present, *self.future))

    def redo(self) -> History:
        if not self.future:
            return self
        return History(self.future[0], (*self.past, self.present), self.future[1:])


class Grid:
    """Ranks and slots that are being filled, and where the next action would fit."""

    def __init__(self, pipeline: Pipeline, placed: Iterable[Placed] = ()):
        self.pipeline = pipeline
        self.busy: list[list[tuple[int, int]]] = [[] for _ in range(pipeline.ranks)]
        self.there: dict[Action, int] = {}  # the slot at which an action has ended
        self._taken: list[list[int]] = [[] for _ in range(pipeline.ranks)]  # starts of forwards
        self._freed: list[list[int]] = [[] for _ in range(pipeline.ranks)]  # ends of B or W
        self._longest = 1
        for one in placed:
            self.put(*one)

    def put(self, action: Action, rank: int, slot: int) -> None:
        slots = self.pipeline.slots(action)
        end, releases = slot + slots, "F" if self.pipeline.backward == "none" else "BW"
        self._longest = max(self._longest, slots)
        insort(self.busy[rank], (slot, end))
        for half in action.halves:
            self.there.setdefault(half, end)
            if half.kind == "F":
                insort(self._taken[rank], slot)
            if half.kind in releases:
                insort(self._freed[rank], end)

    def arrivals(self, action: Action) -> list[tuple[tuple[Action, ...], float]]:
        """What `action` needs, each with the slot from which on it is there, or NEVER."""
        there, pipeline = self.there, self.pipeline
        rank = pipeline.rank_of(action)
        found = []
        for half in action.halves:
            for choice in needs(half, pipeline.stages):
                end = min((there[one] for one in choice if one in there), default=NEVER)
                far = pipeline.stage_rank[choice[0].stage] != rank
                found.append((choice, end + pipeline.latency if far else end))
        return found

    def ready(self, action: Action) -> float:
        """The slot from which on all that `action` needs is there, or NEVER."""
        return max((slot for _, slot in self.arrivals(action)), default=0)

    def held(self, rank: int, slot: int) -> int:
        """The microbatches (of a stage) that a rank holds once what starts at `slot` has."""
        return bisect_right(self._taken[rank], slot) - bisect_right(self._freed[rank], slot)

    def earliest(self, action: Action) -> int | None:
        """The first slot at which `action` may start; None where there is none."""
        ready, rank = self.ready(action), self.pipeline.rank_of(action)
        if ready == NEVER:
            return None
        at = self._gap(rank, int(ready), self.pipeline.slots(action))
        if self.pipeline.limit is None or all(half.kind != "F" for half in action.halves):
            return at
        while not self._room(rank, at):
            releases = self._freed[rank]
            later = bisect_right(releases, at)
            if later == len(releases):
                return None
            at = self._gap(rank, releases[later], self.pipeline.slots(action))
        return at

    def _gap(self, rank: int, at: int, slots: int) -> int:
        """The first slot, from `at` on, that begins as many free ones."""
        row = self.busy[rank]
        for start, end in row[bisect_left(row, (at - self._longest,)) :]:
            if start >= at + slots:
                break
            at = max(at, end)
        return at

    def _room(self, rank: int, at: int) -> bool:
        """Whether a forward may start at slot `at`, with those that come after it."""
        taken = self._taken[rank]
        later = {at, *taken[bisect_right(taken, at) :]}
        return all(self.held(rank, slot) < (self.pipeline.limit or 0) for slot in later)


def drawn(schedule: Schedule, costs: Lasting, limit: int | None = None) -> Drawing:
    """`schedule` drawn at its earliest times. Raises ScheduleError where it cannot go on, and
    ValueError for costs that cannot be drawn."""
    backward, overlaps = _made_of(schedule)
    pipeline = Pipeline(
        schedule.stage_rank, schedule.microbatches, costs, backward, limit, overlaps
    )
    return laid_out(schedule, pipeline)


def laid_out(schedule: Schedule, pipeline: Pipeline) -> Drawing:
    """The rows of `schedule` on `pipeline`, each action as early as it can be.

    Raises ScheduleError where the schedule cannot go on.
    """
    check_actions(schedule)
    check_progress(schedule)
    grid, free, found = Grid(pipeline), [0] * pipeline.ranks, []
    reached = [0] * pipeline.ranks
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.actions):
            while reached[rank] < len(row):
                action = row[reached[rank]]
                slot = max(free[rank], grid.ready(action))
                if slot == NEVER:
                    break
                grid.put(action, rank, int(slot))
                found.append(Placed(action, rank, int(slot)))
                free[rank] = int(slot) + pipeline.slots(action)
                reached[rank] += 1
                moved = True
    found.sort(key=lambda placed: (placed.slot, placed.rank))
    return Drawing(pipeline, tuple(found))


def from_csv(text: str, pipeline: Pipeline) -> Drawing:
    """The drawing of a compute-only CSV at the earliest times.

    Rows of actions that `pipeline` has, some of them empty perhaps, are drawn on it; other rows on
    a pipeline of their own. Raises ScheduleError for what is no schedule or cannot go on.
    """
    given = rows_of(text)
    given += [[]] * (pipeline.ranks - len(given))
    try:
        rows = [[parse(cell) for cell in cells] for cells in given]
        fits = len(rows) == pipeline.ranks
        blank = Drawing(pipeline)
        for rank, row in enumerate(rows if fits else []):
            for action in row:
                blank.place(action, rank, 0)
                fits &= all(pipeline.stage_rank[half.stage] == rank for half in action.halves)
    except ValueError:
        fits = False
    if fits:
        schedule = Schedule(rows, pipeline.stage_rank)
        return laid_out(schedule, pipeline.offering(schedule))
    return drawn(Schedule.from_csv(text), pipeline.costs, pipeline.limit)


def _made_of(schedule: Schedule) -> tuple[str, bool]:
    """The `backward` and the `overlaps` of a pipeline for `schedule`."""
    actions = [action for row in schedule.actions for action in row]
    kinds = {half.kind for action in actions for half in action.halves}
    ways = [way for way, offered in BACKWARDS.items() if kinds <= {*offered}]
    return min(ways, key=lambda way: len(BACKWARDS[way])), any(one.parts for one in actions)


def _fraction(seconds: float) -> Fraction:
    return Fraction(seconds).limit_denominator(10**6)


def _at(placed: Placed) -> str:
    action, rank, slot = placed
    return f"{action} (rank {rank}, slot {slot})"


def _list(actions: Sequence[Action]) -> str:
    shown = [str(action) for action in actions[:_LISTED]]
    if len(actions) > _LISTED:
        return f"{', '.join(shown)} and {len(actions) - _LISTED} more"
    return " or ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
