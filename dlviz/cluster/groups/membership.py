"""Groups of ranks: those that a rank belongs to, splitting by color, and grids with named axes."""

from __future__ import annotations

import os
from collections import deque
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from dlviz.cluster.control import Control
from dlviz.cluster.control.group import Group
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.operations import whole_number
from dlviz.cluster.transport import Transport

LEFT = 256  # tensors, of a quarter of a megabyte at most


class Groups:
    """The groups of one rank. `calls` counts the collective calls made in each, by its number,
    and `saves` the `Saved` (saved.py); `next` is an unused group number; `threads` are those of
    this process that run none of the program's code."""

    def __init__(
        self,
        folder: str,
        rank: int,
        control: Control,
        waiting: Waiting,
        store: Any,
        threads: set[int],
    ):
        self.calls: dict[int, int] = {}
        self.saves: dict[int, int] = {}
        self.grids: dict[tuple[int, ...], Any] = {}  # by the numbers of the groups that they join
        self.next = 2
        self.folder = folder
        self.threads = threads
        self.host_of, self.reaches = control.host_of, control.reaches
        self._rank = rank
        self._control = control
        self._waiting = waiting
        self._store = store
        self._details: dict[int, dict[str, Any]] = {}  # by number
        self._left: deque[torch.Tensor] = deque(maxlen=LEFT)  # others may still read it

    def add(self, number: int, name: str, members: tuple[int, ...]) -> None:
        self._details[number] = {"group": name, "members": members}

    def details(self, number: int) -> dict[str, Any]:
        """The fields of a `Wait` that name a group."""
        return self._details.get(number, {})

    def path(self, kind: str, number: int, members: tuple[int, ...]) -> str:
        """A file that the members of a group share."""
        return os.path.join(self.folder, f"{kind}-{number}-{members[0]}")

    def memory_group(self, number: int, members: tuple[int, ...], transport: Transport) -> Group:
        """A group whose members synchronize in shared memory."""
        path = self.path("group", number, members)
        return self._control.group(path, members, self._waiting, transport, self._left)

    def connect(self, name: str, members: tuple[int, ...]) -> Any:
        """A gloo group of `members`, which all call this, for the backend's own collectives."""
        store = PrefixStore(f"{name}:{','.join(map(str, members))}", self._store)
        place = members.index(self._rank)
        return dist.ProcessGroupGloo(store, place, len(members), timedelta(days=1))


def colors(comm: Any, color: int | None, key: int) -> tuple[int, tuple[int, ...], int] | None:
    """Split the ranks of `comm` by color: the number of this rank's new group, its members (global
    ranks, ordered by key and rank) and its color. Every rank of `comm` must call it."""
    mine = torch.tensor([-1 if color is None else color, key, comm.groups.next])
    table = torch.empty(comm.size, 3, dtype=torch.int64)
    comm.all_gather(table, mine)
    rows = table.tolist()
    chosen = sorted({row[0] for row in rows if row[0] >= 0})
    first = max(row[2] for row in rows)
    comm.groups.next = first + len(chosen)
    if color is None:
        return None
    inside = sorted((row[1], rank) for rank, row in enumerate(rows) if row[0] == color)
    members = tuple(comm.members[rank] for _, rank in inside)
    return first + chosen.index(color), members, color


def alone(comm: Any) -> Any:
    """A Comm of this rank alone. All ranks of `comm` must call it; the first call is collective."""
    groups, key = comm.groups, (comm.number,)
    if key not in groups.grids:
        groups.grids[key] = comm.split(comm.rank)
    return groups.grids[key]


def grid_of(column: Any, row: Any) -> Any:
    """A Comm of all ranks of the grid in which these Comms are this rank's column and row, row by
    row: neighbours at a corner are in neither. Where one of them has one rank alone, it is the
    other. All ranks of the grid must call it; the first call for the two is collective."""
    if 1 in (column.size, row.size):
        return column if row.size == 1 else row
    groups, key = column.groups, (column.number, row.number)
    if key not in groups.grids:
        columns = torch.empty(row.size, column.size, dtype=torch.int64)
        row.all_gather(columns, torch.tensor(column.members))
        number = torch.tensor([groups.next])
        column.all_reduce(number, "max")
        row.all_reduce(number, "max")
        groups.next = int(number) + 1
        members = tuple(columns.T.flatten().tolist())
        groups.grids[key] = type(row)(row.process, members, int(number), f"grid {members}")
    return groups.grids[key]


class Mesh:
    """Named axes of a grid of ranks, each a Comm; `comm` is that of all its ranks."""

    __slots__ = ("__dict__", "__weakref__", "comm")  # so that `vars` has the axes alone

    def __init__(self, comm: Any, /, **axes: Any):
        self.comm = comm
        self.__dict__.update(axes)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={axis.size}" for name, axis in vars(self).items())
        return f"Mesh({axes})"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the mesh has no axis {name!r}: it has {', '.join(self.__dict__)}")

    @classmethod
    def of(cls, comm: Any, axes: dict[str, int]) -> Mesh:
        """The grid of the ranks of `comm`; all of them must call this."""
        total = 1
        if "comm" in axes:
            raise ValueError("mesh.comm has all ranks of the mesh: give the axis another name.")
        for name, length in axes.items():
            whole = whole_number(length)
            if whole is None or whole < 1:
                raise ValueError(
                    f"mesh axis {name}={length!r} has no rank: an axis has a length of 1 or more."
                )
            total *= whole
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
        return cls(comm, **found)
