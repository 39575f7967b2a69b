"""What a rank writes down for the others of its group, who read it even once the rank is lost."""

from __future__ import annotations

import pickle
from typing import Any


class Saved:
    """Objects of each rank of `comm`, in a file a rank. All ranks make as many of these. Where a
    run may not lose the rank, nothing is written."""

    def __init__(self, comm: Any):
        number = comm.groups.saves.get(comm.number, 0)
        comm.groups.saves[comm.number] = number + 1
        path = comm.groups.path("saved", comm.number, comm.members)
        self._paths = [f"{path}-{number}-{rank}" for rank in range(comm.size)]
        self._own = self._paths[comm.rank]
        self._writes = comm.members[comm.rank] in comm.waiting.may_lose

    def add(self, obj: Any) -> None:
        """Save an object of this rank."""
        if self._writes:
            with open(self._own, "ab") as file:
                file.write(pickle.dumps(obj))

    def of(self, rank: int) -> list[Any]:
        """What `rank` has saved, in order; without the last object, if it was lost over that."""
        found = []
        try:
            with open(self._paths[rank], "rb") as file:
                while True:
                    found.append(pickle.load(file))
        except (OSError, EOFError, pickle.UnpicklingError):
            return found
