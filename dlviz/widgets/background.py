"""Work that may wait: a kernel does it in pieces, and answers its front ends in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any

PIECE = 0.01  # s of work between two looks for messages
PAUSE = 0.005  # s in which messages are answered
BUSY = 0.2  # s between two looks at a kernel that is busy


def meanwhile(
    steps: Generator[None, None, Any], free: Callable[[], bool], lock: AbstractContextManager[Any]
) -> None:
    """Take `steps` while the kernel is `free`; all of them immediately where no kernel's loop runs.

    A holder of `lock` may close them early: a kernel may hear its front ends in another thread.
    Steps should be short: messages wait for them.
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
        loop.call_later(PAUSE if free() else BUSY, work)

    loop.call_later(PAUSE, work)


def finish(steps: Generator[None, None, Any]) -> None:
    """Take the remaining steps."""
    for _ in steps:
        pass
