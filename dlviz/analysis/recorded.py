"""Trainings that were recorded once, over seeds and rates, for those who compare methods.

    {"made": {"machine": "x86_64, ...", "date": "2026-11-27"},
    "rows": [
    {"study": "losses", "method": "gossip", "seed": 0, "lr": 0.5, ...},    one a training
    ...

What a row holds is for whoever compares them: `analysis.compared`, `federated.compared`.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

Row = dict[str, Any]
Kind = TypeVar("Kind", bound="Recorded")


@dataclass(frozen=True)
class Recorded:
    """When and where the trainings of a file were `made`, and its `rows`."""

    made: dict[str, str]
    rows: list[Row]

    @classmethod
    def load(cls: type[Kind], path: str | Path) -> Kind:
        """Read the file."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def save(self, path: str | Path) -> None:
        """Write the file, a line for each row."""
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self.rows)
        text = f'{{"made": {json.dumps(self.made)},\n"rows": [\n{lines}\n]}}\n'
        Path(path).write_text(text, encoding="utf-8")


def record(path: Path, rows: Sequence[Row], by: str) -> None:
    """Put `rows`, made here and now, into the file at `path`, in place of those that are alike in
    column `by`."""
    made = {
        "machine": f"{platform.machine()}, {platform.system()}, torch {version('torch')}",
        "date": time.strftime("%Y-%m-%d"),
    }
    replaced = {row[by] for row in rows}
    others = Recorded.load(path).rows if path.exists() else []
    others = [row for row in others if row[by] not in replaced]
    Recorded(made, [*others, *rows]).save(path)


def means(losses: Iterator[float], each: int, count: int) -> list[float | None]:
    """The means of `each` losses one after the other, `count` of them; None where they are not
    finite, or have ended."""
    found = []
    while len(found) < count:
        few = [*islice(losses, each)]
        whole = len(few) == each and math.isfinite(fmean(few))
        found.append(round(fmean(few), 4) if whole else None)
    return found


def last_third(values: Sequence[float]) -> float:
    """The mean of the last third of the values, of one at least."""
    return fmean(values[-max(1, len(values) // 3) :])
