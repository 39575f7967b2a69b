"""The front ends' ES modules, joined into the one text that a notebook or a page can load.

A notebook loads a widget's code from a text, where `import ... from "./dom.js"` has no meaning. So
each module becomes a function that runs once, in its own scope, and returns what the module
exports; it takes its imports from the functions before it.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.\.?/[\w./]+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
JSDOC = re.compile(r"^ */\*\*((?!\*/).)*\*/\n", re.MULTILINE | re.DOTALL)  # for readers
DEFAULT = re.compile(r"^export default ", re.MULTILINE)


@cache
def joined(name: str, variable: str = "") -> str:
    """Module `name` of static/ ("timeline/index") with all that it imports, as the text of one ES
    module.

    Its default export is exported again or, where `variable` is given, bound to that name.
    """
    modules = [f"const {_own(one)} = (() => {{\n{_body(one)}\n}})();" for one in order(name)]
    last = f"const {variable} = {_own(name)}" if variable else f"export default {_own(name)}"
    return "\n".join([*modules, f"{last}.whole;"])


def order(name: str) -> list[str]:
    """The modules that `name` needs, each after those that it imports; `name` is the last."""
    found: list[str] = []
    for _, path in IMPORT.findall(read(f"{name}.js")):
        found += [module for module in order(needed(name, path)) if module not in found]
    return [*found, name]


def needed(name: str, path: str) -> str:
    """The module that `name` imports as `path`."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def read(file: str) -> str:
    return (STATIC / file).read_text(encoding="utf-8")


def _own(name: str) -> str:
    """The name of a module's exports in the text."""
    return f"{name.replace('/', '_')}_js"


def _body(name: str) -> str:
    """A module's code as a function body that takes its imports and returns its exports."""
    code = JSDOC.sub("", read(f"{name}.js"))
    exported = EXPORT.findall(code)
    if DEFAULT.search(code):
        exported.append("whole")

    def taken(imported: re.Match[str]) -> str:
        return f"const {{{imported[1].replace(' as ', ': ')}}} = {_own(needed(name, imported[2]))};"

    code = IMPORT.sub(taken, code)
    code = DEFAULT.sub("const whole = ", EXPORT.sub("", code))
    return f"{code.strip()}\nreturn {{ {', '.join(exported)} }};"
