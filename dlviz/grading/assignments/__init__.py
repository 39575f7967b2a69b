"""The assignments, each a folder of its notebook's name:

    checks.py   what its cells call, and what each check is worth
    run.py      how the student's program is run, and what it left
    hints.py    why it is wrong

and whatever else it needs. `TITLE` names it, `LAB` is the lab that it follows.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules


def titles() -> dict[str, str]:
    """By the names of the folders, in the order of the labs."""
    found = {each.name: import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)}
    return {name: found[name].TITLE for name in sorted(found, key=lambda name: found[name].LAB)}
