r"""The cheapest path through the layers of a net, of which each has a cut of its own.

    layer      1     2     3                 a node: the cost of a layer under a cut
    N 8        o     o     o                 an edge: the cost of bringing its input there
    H 8        O     o     o
                 \
    C 2, F 4   o     O --- O                 the path with the least sum

    found = net_costs([*net_layers("alexnet", 32).values()], convolution_cuts(8), machine)
    cost, path = cheapest_path(found.seconds, found.switches)

Source: N. Dryden et al., "Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained
Parallelism", IPDPS 2019, section V.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dlviz.counts import check_amounts


def best_single(costs: Any, switches: Any) -> tuple[float, int]:
    """The least cost of a net that has the same cut in all layers, and that cut's place."""
    totals = np.sum(costs, axis=0) + np.diagonal(switches, axis1=1, axis2=2).sum(axis=0)
    return float(totals.min()), int(totals.argmin())


def cheapest_path(
    costs: Any,
    switches: Any,
    memory: Any = None,
    limit: float | None = None,
) -> tuple[float, list[int]]:
    """The path through the layers with the least sum, and the place of each layer's cut on it.
    `costs[i][a]`: of layer i under its cut a, maybe infinite; `switches[i][a][b]`: from there to
    cut b of the layer after it. With a `limit` only paths whose sum of `memory`, which has an entry
    for each of `costs`, is at most the limit.

    A dynamic program. With a limit it carries, for each cut of a layer, all pairs of cost and
    memory of which none is better in both, except those that cannot end within the limit.

    Raises ValueError where the shapes do not fit, where no path is finite, and where none keeps to
    the limit, with the bytes that are missing."""
    prices, edges = _amounts("costs", costs), _amounts("switches", switches)
    held = [np.zeros_like(row) for row in prices]
    if limit is not None:
        check_amounts(limit=limit)
        if memory is None:
            raise ValueError(f"limit={limit!r} limits nothing: give memory= as well.")
        held = _amounts("memory", memory)
    _check_shapes(prices, edges, held)
    if not math.isfinite(_to_go(prices, edges)[0].min()):
        raise ValueError("no path has a finite cost: give a layer a cut that suits it.")
    room = np.finfo(float).max if limit is None else float(limit)
    usable = [np.where(np.isfinite(each), 0.0, math.inf) for each in (*prices, *edges)]
    rest = _to_go(
        [row + each for row, each in zip(held, usable, strict=False)], usable[len(held) :]
    )
    if (least := rest[0].min()) > room:
        raise ValueError(
            f"limit={limit!r} is met by no path: {least - room:.17g} bytes are missing; give "
            f"{least:.17g} or more."
        )
    fronts = [[_Front(np.zeros(1), np.zeros(1), np.zeros(1, int), np.zeros(1, int))]]
    for i, edge in enumerate([np.zeros((1, len(prices[0]))), *edges]):
        own = zip(edge.T, prices[i], held[i], room - rest[i], strict=True)
        fronts.append([_led_on(fronts[-1], *each) for each in own])
    return _walk_back(fronts)


class _Front(NamedTuple):
    """Paths that end at a cut of a layer, of which none is better than another in both: their costs
    and memory, and the cut and the place in its front that each comes from."""

    cost: np.ndarray
    memory: np.ndarray
    cut: np.ndarray
    place: np.ndarray


def _led_on(
    fronts: list[_Front], edges: np.ndarray, cost: float, memory: float, most: float
) -> _Front:
    """The paths of `fronts`, those of at most `most` memory, led on to a cut of the next layer."""
    costs = np.concatenate([f.cost + edge for f, edge in zip(fronts, edges, strict=True)]) + cost
    before = np.concatenate([front.memory for front in fronts])
    cut = np.repeat(np.arange(len(fronts)), [len(front.cost) for front in fronts])
    place = np.concatenate([np.arange(len(front.cost)) for front in fronts])
    use = np.flatnonzero((before <= most) & np.isfinite(costs))
    use = use[np.lexsort((costs[use], before[use]))]  # by memory, then by cost
    use = use[np.diff(np.minimum.accumulate(costs[use]), prepend=math.inf) < 0]
    return _Front(costs[use], before[use] + memory, cut[use], place[use])


def _walk_back(fronts: list[list[_Front]]) -> tuple[float, list[int]]:
    """The least cost of the last fronts, and the cuts that led there."""
    costs = [front.cost.min(initial=math.inf) for front in fronts[-1]]
    cut = int(np.argmin(costs))
    place = int(np.argmin(fronts[-1][cut].cost))
    path = []
    for layer in fronts[:0:-1]:
        path.append(cut)
        cut, place = int(layer[cut].cut[place]), int(layer[cut].place[place])
    return float(min(costs)), path[::-1]


def _to_go(nodes: list[np.ndarray], edges: list[np.ndarray]) -> list[np.ndarray]:
    """Of each layer and cut the least sum from there to the end, its own included."""
    found = [nodes[-1]]
    for own, edge in zip(nodes[-2::-1], edges[::-1], strict=True):
        found.append(own + (edge + found[-1]).min(axis=1))
    return found[::-1]


def _amounts(what: str, rows: Any) -> list[np.ndarray]:
    found = [np.asarray(row, dtype=np.float64) for row in rows]
    for i, row in enumerate(found):
        if np.isnan(row).any() or (row < 0).any():
            raise ValueError(f"{what}[{i}]={rows[i]!r} has to hold numbers, 0 or more, or inf.")
    return found


def _check_shapes(
    prices: list[np.ndarray], edges: list[np.ndarray], held: list[np.ndarray]
) -> None:
    sizes = [row.shape for row in prices]
    if not sizes or any(len(size) != 1 or not size[0] for size in sizes):
        raise ValueError(f"costs of the shapes {sizes} are no path: give each layer one or more.")
    due = [(*a, *b) for a, b in zip(sizes, sizes[1:], strict=False)]
    for what, own, shapes in (("switches", edges, due), ("memory", held, sizes)):
        given = [each.shape for each in own]
        if given != shapes:
            raise ValueError(
                f"{what} have the shapes {given}, and costs of the shapes {sizes} need {shapes}: "
                "give a value for each."
            )
