"""What torchrun has started on one host: one process, the parent, starts the host's ranks, and the
others hold a seat. They hand over what their rank is to do and in which environment, and wait.

    seat  --job, environment-->  parent        by a socket in a folder of this user's alone
    seat  <--result or error---  parent
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from dlviz.cluster.errors import DeadlockError, RankError, RunError, RunTimeout
from dlviz.cluster.hosts.network import WAIT

ERRORS = {each.__name__: each for each in (DeadlockError, RankError, RunTimeout)}


class Seat(NamedTuple):
    """One rank of this host, as the parent has it; `connection` leads to its process, None for the
    parent's own."""

    rank: int
    environ: dict[str, str]
    job: bytes
    connection: Any = None

    def answer(self, *what: Any) -> None:
        if self.connection is not None:
            with suppress(OSError):  # it has gone
                self.connection.send(what)


@contextmanager
def seats(folder: str, own: Seat, ranks: int) -> Iterator[list[Seat]]:
    """All of the host's, in the order of their ranks, once all have come. Who has not had an answer
    by the end of the `with` is told of the failure."""
    os.mkdir(folder, 0o700)
    found = [own]
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(folder, "seats"))
            listener.listen(ranks)
            listener.settimeout(WAIT)
            while len(found) < ranks:
                connection = Connection(listener.accept()[0].detach())
                rank, environ, job = connection.recv()
                found.append(Seat(rank, environ, job, connection))
        yield sorted(found)
    except BaseException as error:
        for seat in found:
            seat.answer("failed", type(error).__name__, str(error))
        raise
    finally:
        for seat in found:
            if seat.connection is not None:
                seat.connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def sit(folder: str, own: Seat) -> bytes:
    """Hand over what this rank is to do; its result, pickled."""
    with Connection(_connect(os.path.join(folder, "seats")).detach()) as connection:
        connection.send(own[:3])
        try:
            what, *rest = connection.recv()
        except (EOFError, OSError):
            raise RunError(
                f"rank {own.rank} has lost the process that started it, that of LOCAL_RANK 0."
            ) from None
    if what == "failed":
        raise error_of(*rest)
    return rest[0]


def _connect(path: str) -> socket.socket:
    until = time.monotonic() + WAIT
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
            return sock
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            if time.monotonic() > until:
                raise RunError(
                    f"LOCAL_RANK 0 of this host has not called launch for {WAIT:g} s: every "
                    "process that torchrun starts has to call it."
                ) from None
            time.sleep(0.01)


def error_of(name: str, message: str) -> BaseException:
    """The error of that name, for a process in which it has not happened."""
    if name == "ValueError":
        return ValueError(message)
    if name in ("RunInterrupted", "KeyboardInterrupt"):
        return KeyboardInterrupt(message)
    return ERRORS.get(name, RunError)(message)
