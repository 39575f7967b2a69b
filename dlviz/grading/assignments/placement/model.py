"""Placements played by the assignment's rule, and drawn so that known mistakes show.

    spans      of each group (start, end)           messages    [(group, to device, start, end)]

Numbers are quarters, so that sums are exact and ties are ties. The rule is that of dlviz.sim, but
that any number of messages may arrive at a time: on two devices the times are the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dlviz.machine import Link
from dlviz.sim.placement import Devices, Graph
from dlviz.sim.placement.player import Player

Span = tuple[float, float]
Sent = tuple[int, int, float, float]
CASES = 4  # graphs at each size
TRIES = 2000  # draws until all mistakes show; a handful is usual
DRAW = random.SystemRandom()


@dataclass(frozen=True)
class Case:
    """What a player gets."""

    graph: Graph
    devices: Devices
    placement: Sequence[int]

    @property
    def over(self) -> list[float]:
        """Of each device the bytes that its groups hold beyond its memory."""
        held = [0] * self.devices.count
        for group, device in enumerate(self.placement):
            held[device] += (self.graph.weights or ())[group]
        return [max(0, own - room) for own, room in zip(held, self.devices.room, strict=True)]

    def takes(self, group: int) -> float:
        return _takes(self.graph, self.devices, group, self.placement[group])

    def costs(self, group: int) -> float:
        return self.devices.link.seconds(self.graph.nbytes[group])

    def receivers(self, group: int, urgent: bool = True) -> list[int]:
        """The devices that need its value, in the order in which they get it."""
        ranks = upward_ranks(self.graph)
        children = sorted(self.graph.children[group], key=lambda g: (-ranks[g] * urgent, g))
        places = [self.placement[child] for child in children]
        return [to for to in places if to != self.placement[group]]


def upward_ranks(graph: Graph) -> list[float]:
    ranks = [0.0] * len(graph)
    for group in reversed(graph.in_order()):
        after = [ranks[child] for child in graph.children[group]]
        seconds = graph.seconds[group]
        assert isinstance(seconds, float)
        ranks[group] = seconds + max(after, default=0.0)
    return ranks


def played(
    case: Case,
    inputs: bool = True,
    single: bool = True,
    ranked: bool = True,
    earliest: bool = True,
    scaled: bool = True,
    once: bool = True,
    port: bool = True,
    urgent: bool = True,
) -> tuple[list[Span], list[Sent]]:
    """The spans and messages of a placement; each False is a rule that is forgotten."""
    graph, place, ranks = case.graph, case.placement, upward_ranks(case.graph)
    spans: dict[int, Span] = {}
    free, out = [0.0] * case.devices.count, [0.0] * case.devices.count
    messages: list[Sent] = []
    there: dict[tuple[int, int], float] = {}

    def start(group: int) -> float:
        arrived = [there[parent, place[group]] for parent in graph.parents[group]]
        return max(free[place[group]] if single else 0, *(arrived if inputs else ()), 0)

    while len(spans) < len(graph):
        ready = [
            g for g in range(len(graph)) if g not in spans and spans.keys() >= {*graph.parents[g]}
        ]
        group = min(ready, key=lambda g: (start(g) * earliest, -ranks[g] * ranked, g))
        device, begins = place[group], start(group)
        seconds = graph.seconds[group]
        assert isinstance(seconds, float)
        end = begins + (case.takes(group) if scaled else seconds)
        spans[group], free[device], there[group, device] = (begins, end), end, end
        for to in case.receivers(group, urgent):
            if once and (group, to) in there:
                continue
            sent = max(end, out[device]) if port else end
            out[device] = sent + case.costs(group)
            messages.append((group, to, sent, out[device]))
            there.setdefault((group, to), out[device])
    return [spans[group] for group in range(len(graph))], messages


def messages_of(case: Case, spans: Sequence[Span]) -> list[Sent]:
    """The messages that belong to spans: each value once, by a port that sends one at a time."""
    out, found = [0.0] * case.devices.count, []
    for group in sorted(range(len(spans)), key=lambda g: (spans[g][1], spans[g][0])):
        device = case.placement[group]
        for to in dict.fromkeys(case.receivers(group)):
            begins = max(spans[group][1], out[device])
            out[device] = begins + case.costs(group)
            found.append((group, to, begins, out[device]))
    return found


def greedy(
    case: Case,
    messages: bool = True,
    inputs: bool = True,
    busy: bool = True,
    scaled: bool = True,
    fits: bool = True,
    ranked: bool = True,
    last: bool = False,
    by_start: bool = False,
    given: Sequence[int] = (),
) -> Iterator[tuple[int, dict[int, Span]]]:
    """In the order of placing, each group and its (start, end) on each device that has room: it
    goes to where it ends first, or to the device that is `given`. Each False is forgotten."""
    graph, devices, ranks = case.graph, case.devices, upward_ranks(case.graph)
    free, room = [0.0] * devices.count, [*devices.room]
    at: dict[int, tuple[int, float]] = {}
    for group in graph.in_order([-rank * ranked for rank in ranks]):
        ends: dict[int, Span] = {}
        for device in range(devices.count):
            start = busy * free[device]
            for parent in graph.parents[group] if inputs else ():
                where, end = at[parent]
                start = max(start, end + case.costs(parent) * (messages and where != device))
            seconds = graph.seconds[group]
            assert isinstance(seconds, float)
            factor = devices.slower[device] if scaled else 1
            if not fits or room[device] >= (graph.weights or ())[group]:
                ends[device] = start, start + seconds * factor
        yield group, ends
        if not ends and not given:
            return
        choice = given[group] if given else chosen(ends, last, by_start)
        at[group] = choice, ends.get(choice, (0.0, 0.0))[1]
        free[choice], room[choice] = at[group][1], room[choice] - (graph.weights or ())[group]


def chosen(ends: dict[int, Span], last: bool = False, by_start: bool = False) -> int:
    """The device on which a group ends first; of several the lower one."""
    return min(ends, key=lambda d: (ends[d][not by_start], -d if last else d))


def greedy_placement(case: Case, **how: Any) -> list[int]:
    """Of every group its device; shorter where a group fits nowhere."""
    picks = {"last": how.get("last", False), "by_start": how.get("by_start", False)}
    found = {group: chosen(ends, **picks) for group, ends in greedy(case, **how) if ends}
    return [found[group] for group in sorted(found)]


MISTAKES: dict[str, dict[str, bool]] = {  # of a greedy; `scaled` shows on unequal devices alone
    "balanced": {"messages": False, "inputs": False},
    "messages": {"messages": False},
    "inputs": {"inputs": False},
    "busy": {"busy": False},
    "scaled": {"scaled": False},
    "ranked": {"ranked": False},
    "last": {"last": True},
    "by_start": {"by_start": True},
}


# -- drawn -----------------------------------------------------------------------------------------


def graph_of(groups: int, draw: random.Random) -> Graph:
    """A graph whose groups have up to three parents, of whatever numbers."""
    number = draw.sample(range(groups), groups)
    parents: list[list[int]] = [[] for _ in range(groups)]
    for g in range(1, groups):
        many = min(g, draw.choice((0, 1, 1, 1, 2, 2, 3)))
        parents[number[g]] = [number[p] for p in draw.sample(range(max(0, g - 4), g), many)]
    seconds, nbytes, weights = (
        [draw.randint(1, most) for _ in range(groups)] for most in (5, 8, 9)
    )
    return Graph(seconds, parents, nbytes, weights)


def devices_of(count: int, unequal: bool, draw: random.Random, link: Link | None = None) -> Devices:
    factors = [draw.choice((1, 1.5, 2, 3)) for _ in range(count)] if unequal else None
    return Devices(count, link or Link(0.25 * draw.randint(1, 4), 4), factors)


def drawn(
    groups: int,
    count: int,
    unequal: bool,
    shows: Callable[[list[Case]], bool],
    link: Link | None = None,
    memory: bool = False,
) -> list[Case]:
    """Some cases, drawn until `shows` says that they tell right from wrong. `memory`: each
    device holds 1.4 times an equal share."""
    for _ in range(TRIES):
        cases = []
        for _ in range(CASES):
            graph = graph_of(groups, DRAW)
            devices = devices_of(count, unequal, DRAW, link)
            if memory:
                room = int(1.4 * sum(graph.weights or ()) / count)
                devices = Devices(count, devices.link, devices.factors, room)
            cases.append(Case(graph, devices, [DRAW.randrange(count) for _ in range(groups)]))
        if shows(cases):
            return cases
    raise RuntimeError(f"no graphs of {groups} groups on {count} devices tell right from wrong.")


def shows_spans(cases: list[Case]) -> bool:
    """Whether forgetting a rule changes when groups run."""
    rules = ["inputs", "single", "ranked", "earliest"] + ["scaled"] * any(
        {*case.devices.slower} != {1} for case in cases
    )
    return all(
        any(played(case)[0] != played(case, **{rule: False})[0] for case in cases) for rule in rules
    )


def shows_messages(cases: list[Case]) -> bool:
    """Whether forgetting a rule of messages changes when groups run; each case has some. (Of two
    devices only one is another.)"""
    rules = ["once", "port"] + ["urgent"] * (cases[0].devices.count > 2)
    return all(played(case)[1] for case in cases) and all(
        any(played(case)[0] != played(case, **{rule: False})[0] for case in cases) for rule in rules
    )


def shows_played(cases: list[Case]) -> bool:
    """Whether forgetting any rule changes when groups run."""
    return shows_spans(cases) and shows_messages(cases)


def memory_cases(groups: int, count: int) -> list[Case]:
    """Two placements that fit to the byte, and two that are a byte too large."""
    found = []
    for large in (0, 1, 0, 1):
        graph, place = graph_of(groups, DRAW), [DRAW.randrange(count) for _ in range(groups)]
        none = Devices(count, Link(0.5, 4), None, [0] * count)
        held = Case(graph, none, place).over
        room = [own - large * (own == max(held)) for own in held]
        found.append(Case(graph, Devices(count, none.link, None, room), place))
    return found


def shows_greedy(cases: list[Case]) -> bool:
    """Whether each known mistake changes a placement, and none is on one device alone."""
    right = [greedy_placement(case) for case in cases]
    scaled = any({*case.devices.slower} != {1} for case in cases)
    differs = (
        right != [greedy_placement(case, **how) for case in cases]
        for name, how in MISTAKES.items()
        if scaled or name not in ("scaled", "by_start")
    )
    return all(len({*each}) > 1 for each in right) and all(differs)


def shows_fits(cases: list[Case]) -> bool:
    """Whether memory changes a placement, known mistakes do too, and every placement is whole."""
    found = [greedy_placement(case) for case in cases]
    whole = all(len(each) == len(case.graph) for each, case in zip(found, cases, strict=True))
    return (
        whole
        and found != [greedy_placement(case, fits=False) for case in cases]
        and shows_greedy(cases)
    )


def every_placement(graph: Graph, devices: Devices) -> dict[tuple[int, ...], float | None]:
    """The seconds of each placement, by dlviz.sim; None for one that does not fit."""
    player, found = Player(graph, devices), {}
    for each in product(range(devices.count), repeat=len(graph)):
        found[each] = None if any(player.missing(each)) else player.seconds(each)
    return found


def _takes(graph: Graph, devices: Devices, group: int, device: int) -> float:
    seconds: Any = graph.seconds[group]
    return seconds * devices.slower[device]
