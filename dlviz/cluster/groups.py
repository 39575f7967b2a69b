"""Groups of ranks: who is in which, and grids with named axes."""

from __future__ import annotations

from typing import Any

import torch


def colors(comm: Any, color: int | None, key: int) -> tuple[int, tuple[int, ...], int] | None:
    """Split the ranks of `comm` by color: the number of this rank's new group, its members (global
    ranks, ordered by key and rank) and its color. Every rank of `comm` must call it."""
    process = comm.process
    mine = torch.tensor([-1 if color is None else color, key, process.next_group])
    table = torch.empty(comm.size, 3, dtype=torch.int64)
    comm.all_gather(table, mine)
    rows = table.tolist()
    chosen = sorted({row[0] for row in rows if row[0] >= 0})
    first = max(row[2] for row in rows)
    process.next_group = first + len(chosen)
    if color is None:
        return None
    inside = sorted((row[1], rank) for rank, row in enumerate(rows) if row[0] == color)
    members = tuple(comm.members[rank] for _, rank in inside)
    return first + chosen.index(color), members, color


class Mesh:
    """Named axes of a grid of ranks, each a Comm."""

    def __init__(self, **axes: Any):
        self.__dict__.update(axes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the mesh has no axis {name!r}: it has {', '.join(self.__dict__)}")

    @classmethod
    def of(cls, comm: Any, axes: dict[str, int]) -> Mesh:
        """The grid of the ranks of `comm`; all of them must call this."""
        total = 1
        for name, length in axes.items():
            if length < 1:
                raise ValueError(
                    f"mesh axis {name}={length} has no rank: an axis has a length of 1 or more."
                )
            total *= length
        if total != comm.size:
            raise ValueError(
                f"mesh {axes} has {total} places for the {comm.size} ranks of {comm.name}: their "
                f"product must be {comm.size}."
            )
        found, stride = {}, total
        for name, length in axes.items():
            stride //= length
            here = comm.rank // stride % length
            row = colors(comm, comm.rank - here * stride, here)
            assert row is not None  # it has a color
            number, members, _ = row
            found[name] = type(comm)(comm.process, members, number, f"{name} {members}")
        return cls(**found)
