"""Where the groups of a graph of operators are drawn: parents to the left, no two at one place.

0 - 1 - 3        a column: the longest path from the left; a row: near those of the parents
  \\ 2 /
"""

from __future__ import annotations

from collections.abc import Sequence

Place = tuple[float, float]


def layout(parents: Sequence[Sequence[int]]) -> list[Place]:
    """(column, row) of each group; each column's rows are one apart and around 0. `parents` are
    those of each group, as indices. Raises ValueError for a cycle."""
    columns: dict[int, int] = {}
    while len(columns) < len(parents):
        ready = [
            group
            for group, own in enumerate(parents)
            if group not in columns and all(parent in columns for parent in own)
        ]
        if not ready:
            raise ValueError("parents: they have a cycle, so that no group of it can be first.")
        for group in ready:
            columns[group] = 1 + max((columns[parent] for parent in parents[group]), default=-1)
    rows: dict[int, float] = {}
    for column in range(1 + max(columns.values(), default=-1)):
        own = [group for group in columns if columns[group] == column]
        wanted = {group: _mean([rows[parent] for parent in parents[group]]) for group in own}
        own.sort(key=lambda group: (wanted[group], group))
        rows |= {group: place - (len(own) - 1) / 2 for place, group in enumerate(own)}
    return [(float(columns[group]), rows[group]) for group in range(len(parents))]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
