"""The judge: a separate interpreter that shares none of the kernel's modules.

    kernel   check_sums(f, g) --socket--> {check, sizes, nonce} + f, g pickled
    judge         ranks unpack f and g and run them; their results are judged here
    kernel        points, text  <--------- nonce + {points, text}

Only ranks unpickle the kernel's programs, and ranks return only plain data (plain.py). A check
is named by its module and name, and loaded from disk. One judge serves a kernel: it starts with
the first check and ends with the kernel. The socket has a fixed path, so that reloaded checks
find it; before they ask, they verify that this kernel started the process behind it, with the
same interpreter and command (Linux: by /proc). The answer contains the nonce, so that no rank
can forge one.
"""

from __future__ import annotations

import json
import linecache
import os
import pickle
import secrets
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import cloudpickle

ROOT = str(Path(__file__).parents[3])
START = (
    "import sys; sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1]); "
    "from dlviz.grading.harness import judge; judge.serve()"
)
LONGEST = 60  # characters of the socket's folder; the whole path may have at most 107
PATIENCE = 300.0  # s until a new judge must answer, also on a busy machine
NONCE = 32  # bytes
LENGTH = struct.Struct("=q")


class Packed:
    """One of the kernel's programs, pickled; unpickling this, in a rank, unpacks it."""

    def __init__(self, name: str, data: bytes, number: int, path: Sequence[str]):
        self.__name__ = name
        self._given = data, number, tuple(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpacked, self._given


def unpacked(data: bytes, number: int, path: tuple[str, ...]) -> Any:
    """The program; the student's own modules are found on the kernel's path."""
    sys.path.extend(folder for folder in path if folder not in sys.path)
    return _programs(data)[number]


@cache
def _programs(data: bytes) -> Sequence[Any]:
    """All programs of a check, which share their notebook's globals."""
    return pickle.loads(data)


# -- in the kernel ---------------------------------------------------------------------------------


def ask(
    check: tuple[str, str], programs: Sequence[Any], sizes: Sequence[Any]
) -> tuple[float, str, str]:
    """Let a check, given by its module and name, judge programs at sizes. Returns the points,
    the text to print, and the programs' output."""
    nonce = secrets.token_hex(NONCE // 2).encode()
    entries = linecache.cache.items()
    request = {
        "check": check,
        "sizes": sizes,
        "names": [getattr(program, "__name__", repr(program)) for program in programs],
        "path": [*map(str, sys.path)],
        "cells": {name: e[2] for name, e in entries if len(e) == 4 and e[1] is None},
    }
    data = _pickled(programs)
    with _connected() as judge:
        for part in (nonce, json.dumps(request).encode(), data):
            _send(judge, part)
        answer = _receive(judge)
    if answer[:NONCE] != nonce:
        raise RuntimeError("the answer is not the judge's: run this cell again.")
    summary = json.loads(answer[NONCE:])
    if "failed" in summary:
        raise RuntimeError(f"the check itself failed; please report this:\n{summary['failed']}")
    return summary["points"], summary["text"], summary["printed"]


def _pickled(programs: Sequence[Any]) -> bytes:
    try:
        return cloudpickle.dumps(tuple(programs))
    except Exception:
        from dlviz.cluster import pack_worker

        for program in programs:
            pack_worker(program, (), {})  # raises an error that names what cannot be sent
        raise


def _connected() -> socket.socket:
    """A connection to this kernel's judge, which is started if there is none."""
    address, command = _address(os.getpid()), _command(os.getpid())
    pid, until = 0, time.monotonic() + PATIENCE
    while True:
        judge = socket.socket(socket.AF_UNIX)
        try:
            judge.connect(address)
        except OSError:
            judge.close()
            if not pid:
                quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
                pid = os.posix_spawn(  # a group of its own: an interrupt is for the kernel
                    command[0], command, os.environ, file_actions=quiet, setpgroup=0
                )
            if time.monotonic() > until or os.waitpid(pid, os.WNOHANG)[0]:
                raise RuntimeError("the process that judges did not start.") from None
            time.sleep(0.01)
            continue
        if not _genuine(judge, command):
            judge.close()
            raise RuntimeError("another process has taken the judge's place: restart the kernel.")
        return judge


def _genuine(judge: socket.socket, command: Sequence[str]) -> bool:
    """Whether this kernel started the listening process, with the same interpreter and command."""
    if sys.platform != "linux":
        return True
    pid, user, _ = struct.unpack("3i", judge.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    place = Path(f"/proc/{pid}")
    started = (place / "cmdline").read_bytes().decode().split("\0")[:-1]
    parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    program = os.readlink(place / "exe") == os.readlink("/proc/self/exe")
    return user == os.getuid() and program and started == [*command] and parent == os.getpid()


def _command(kernel: int) -> list[str]:
    return [sys.executable, "-I", "-c", START, ROOT, str(kernel)]


def _address(kernel: int) -> str:
    home = tempfile.gettempdir()
    return os.path.join(
        home if len(home) <= LONGEST else "/dev/shm", f"dlviz-{kernel}-judge", "socket"
    )


def _send(to: socket.socket, data: bytes) -> None:
    to.sendall(LENGTH.pack(len(data)) + data)


def _receive(source: socket.socket) -> bytes:
    """Raises EOFError if the other end has closed."""
    (length,) = LENGTH.unpack(_exactly(source, LENGTH.size))
    return _exactly(source, length)


def _exactly(source: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        part = source.recv(min(length - len(data), 1 << 20))
        if not part:
            raise EOFError("the other end has gone.")
        data += part
    return bytes(data)


# -- in the judge ----------------------------------------------------------------------------------


def serve() -> None:
    """Judge for one kernel, one check after another, until the kernel ends or interrupts a
    check."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kernel = int(sys.argv[2])
    address = _address(kernel)
    folder = os.path.dirname(address)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(address)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            listener.settimeout(1.0)
            while os.getppid() == kernel:
                with suppress(TimeoutError, EOFError, OSError), listener.accept()[0] as client:
                    _answer(client)
    except KeyboardInterrupt:  # from `_watch`
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answer(client: socket.socket) -> None:
    client.settimeout(PATIENCE)
    nonce, request, data = (_receive(client) for _ in range(3))
    client.settimeout(None)
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(client, done), daemon=True)
    watch.start()
    try:
        summary: dict[str, Any] = judged(json.loads(request), data)
    except Exception:
        summary = {"failed": traceback.format_exc()}
    done.set()
    _send(client, nonce + json.dumps(summary).encode())
    watch.join()


def _watch(client: socket.socket, done: threading.Event) -> None:
    """Interrupt the current check when the kernel no longer waits for it."""
    with suppress(OSError):
        client.recv(1)  # the kernel sends nothing more, and closes when it has read the answer
    if not done.is_set():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def judged(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    """A check's result, as plain data."""
    module, name = request["check"]
    for cell, lines in request["cells"].items():
        linecache.cache[cell] = (sum(map(len, lines)), None, lines, cell)
    programs = [
        Packed(called, data, number, request["path"])
        for number, called in enumerate(request["names"])
    ]
    sizes = [tuple(each) if isinstance(each, list) else each for each in request["sizes"]]
    printed = StringIO()
    with redirect_stdout(printed):
        report = getattr(import_module(module), name).grade(*programs, sizes=sizes)
    return {"points": report.points, "text": str(report), "printed": printed.getvalue()}
