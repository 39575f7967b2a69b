"""Which threads of a rank can still do something of their own accord."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

# Where threads of libraries sit while they have nothing to do; only other threads wake them up.
RESTING = {
    (os.path.join("tqdm", "_monitor.py"), "run"),
    (os.path.join("futures", "thread.py"), "_worker"),
    (os.path.join("multiprocessing", "queues.py"), "_feed"),
}


def awake() -> set[int]:
    """The threads (their idents) that run, sleep, or wait for something other than work to do."""
    return {thread for thread, frame in sys._current_frames().items() if not _rests(frame)}


def join_all() -> None:
    """Wait, as Python does at its end, for the threads that are no daemons."""
    for thread in threading.enumerate():
        if thread.daemon or thread is threading.current_thread():
            continue
        while thread.is_alive() and thread.ident in awake():
            thread.join(0.05)


def _rests(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    if frame is None:
        return False
    file = os.sep.join(frame.f_code.co_filename.rsplit(os.sep, 2)[-2:])
    return (file, frame.f_code.co_name) in RESTING
