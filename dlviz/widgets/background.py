"""Work that may wait: a kernel does it in pieces, and answers its front ends in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

PIECE = 0.01  # s of work until a message is looked for
REST = 0.005  # s in which messages are answered
BUSY = 0.2  # s until it is asked again whether the kernel is free


def meanwhile(
    steps: Generator[None, None, Any], free: Callable[[], bool], lock: AbstractContextManager[Any]
) -> None:
    """Take `steps` while the kernel is `free`, or all of them at once where no kernel's loop runs.

    They end early where they are closed, by a holder of `lock`: a kernel may hear its front ends in
    another thread. A step should be short: a message waits for it.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        finish(steps)
        return

    def work() -> None:
        until = perf_counter() + PIECE
        with lock:
            while free() and perf_counter() < until:
                try:
                    next(steps)
                except StopIteration:
                    return
        loop.call_later(REST if free() else BUSY, work)

    loop.call_later(REST, work)


def finish(steps: Generator[None, None, Any]) -> None:
    """Take all steps that are left."""
    for _ in steps:
        pass
