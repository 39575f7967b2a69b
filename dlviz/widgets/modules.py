"""The front ends' ES modules, joined into the one text that a notebook or a page can load.

A notebook loads a widget's code from a text, where `import ... from "./base.js"` has no meaning. So
the modules that a module imports are put before it, each once, without the words import and export:
what is left is one module with the same names. A name is therefore declared in one module only.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./([\w.]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


@cache
def joined(name: str) -> str:
    """Module `name` of static/ and all that it imports, as one ES module."""
    return "\n".join(
        EXPORT.sub("", IMPORT.sub("", read(module))).strip() for module in order(name)
    )


def order(name: str) -> list[str]:
    """The modules that `name` needs, each after those that it imports; `name` is the last."""
    found: list[str] = []
    for needed in IMPORT.findall(read(name)):
        found += [module for module in order(needed) if module not in found]
    return [*found, name]


def read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")
