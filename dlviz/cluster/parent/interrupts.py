"""Interrupts of the launching process: deferred to where a run can be left safely."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupts:
    """Inside the `with` SIGINT is recorded and raises nothing by itself; `check` raises
    KeyboardInterrupt for one that came. An unchecked one is raised on leaving."""

    def __init__(self) -> None:
        self._came = False
        self._before: object = None

    def __enter__(self) -> Interrupts:
        here = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGINT) if here else None  # None: not one of Python's
        if handler is not None:
            self._before = handler
            signal.signal(signal.SIGINT, lambda number, frame: self.record())
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # pyright: ignore[reportArgumentType]
            if self._came and error[0] is None:
                signal.raise_signal(signal.SIGINT)

    def record(self) -> None:
        """Record an interrupt."""
        self._came = True

    def check(self) -> None:
        if self._came:
            self._came = False
            raise KeyboardInterrupt


@contextmanager
def sigterm_too() -> Iterator[None]:
    """Inside, SIGTERM, which would end this process immediately, interrupts it as SIGINT does."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
