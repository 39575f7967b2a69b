"""The front ends' ES modules, joined into the one text that a notebook or a page can load.

A notebook loads a widget's code from a text, where `import ... from "./base.js"` has no meaning. So
each module that is needed becomes a function that runs once, in a scope of its own, and gives what
the module exports; what it imports it takes from those before it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
DEFAULT = re.compile(r"^export default ", re.MULTILINE)


@cache
def joined(name: str, variable: str = "") -> str:
    """Module `name` of static/ with all that it imports, as the text of one ES module.

    Its default export is exported again or, where `variable` is given, bound to that name.
    """
    modules = [f"const {module}_js = (() => {{\n{_body(module)}\n}})();" for module in order(name)]
    last = f"const {variable} = {name}" if variable else f"export default {name}"
    return "\n".join([*modules, f"{last}_js.whole;"])


def order(name: str) -> list[str]:
    """The modules that `name` needs, each after those that it imports; `name` is the last."""
    found: list[str] = []
    for _, needed in IMPORT.findall(read(f"{name}.js")):
        found += [module for module in order(needed) if module not in found]
    return [*found, name]


def read(file: str) -> str:
    return (STATIC / file).read_text(encoding="utf-8")


def _body(name: str) -> str:
    """A module's code as that of a function: imports are taken, exports are given back."""
    code = read(f"{name}.js")
    exported = EXPORT.findall(code)
    if DEFAULT.search(code):
        exported.append("whole")
    code = IMPORT.sub(r"const {\1} = \2_js;", code)
    code = DEFAULT.sub("const whole = ", EXPORT.sub("", code))
    return f"{code.strip()}\nreturn {{ {', '.join(exported)} }};"
