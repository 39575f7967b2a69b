"""Measure and print every group of rows, or those that are named: `python -m benchmarks ring`."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from math import nan

import benchmarks
from benchmarks.table import Row, falls_short, heading, lines


def main(names: list[str]) -> int:
    groups = {}
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name != "__main__":
            found = import_module(f"benchmarks.{module.name}")
            if hasattr(found, "rows"):
                groups[module.name] = found.rows
    unknown = [name for name in names if name not in groups]
    if unknown:
        print(f"{unknown[0]!r} is not a group of rows: use {', '.join(groups)}.", file=sys.stderr)
        return 2
    print(heading(), flush=True)
    short = []
    for name in names or groups:
        try:
            rows = groups[name]()
        except Exception as error:  # the groups after it are measured nevertheless
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            rows = [Row(name, nan, nan, nan, remark=f"not measured: {why}")]
        print(*lines(rows), sep="\n", flush=True)
        short += [row.what for row in rows if falls_short(row)]
    print("\nFalls short: " + "; ".join(short) if short else "\nNothing falls short.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
