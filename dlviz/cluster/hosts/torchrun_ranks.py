"""What torchrun has started on one host: one process, the parent, starts the host's ranks; the
others hand over their rank's job and environment, and wait for its result.

    waiter  --job, environment-->  parent      by a socket in a folder of this user's alone
    waiter  <--result or error---  parent
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from time import monotonic, sleep
from typing import Any, NamedTuple

from dlviz.cluster.errors import DeadlockError, RankError, RunError, RunTimeout
from dlviz.cluster.hosts.network import WAIT
from dlviz.cluster.stuck.verdict import ranks_in_words

ERRORS = {each.__name__: each for each in (DeadlockError, RankError, RunTimeout)}
GLANCE = 0.2  # s between two looks at the time


class Waiter(NamedTuple):
    """torchrun's process for one rank of this host, as the parent has it; `connection` leads to it,
    None for the parent itself."""

    rank: int
    environ: dict[str, str]
    job: bytes
    connection: Any = None

    def answer(self, *what: Any) -> None:
        if self.connection is not None:
            with suppress(OSError):  # it has gone
                self.connection.send(what)


@contextmanager
def waiters(folder: str, own: Waiter, ranks: int, timeout: float) -> Iterator[list[Waiter]]:
    """All of the host's, in the order of their ranks, once all have connected. If the `with` fails,
    they receive its error."""
    found = [own]
    try:
        _await_waiters(folder, found, ranks, timeout)
        yield sorted(found)
    except BaseException as error:
        for waiter in found:
            waiter.answer("failed", *summary(error))
        raise
    finally:
        for waiter in found:
            if waiter.connection is not None:
                waiter.connection.close()


def _await_waiters(folder: str, found: list[Waiter], ranks: int, timeout: float) -> None:
    """Add to those that are `found` until all have connected, in a folder that exists until
    then."""
    until = monotonic() + max(timeout, WAIT)
    shutil.rmtree(folder, ignore_errors=True)  # of a parent that was killed
    os.mkdir(folder, 0o700)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(folder, "ranks"))
            listener.listen(ranks)
            listener.settimeout(GLANCE)
            while len(found) < ranks:
                if monotonic() > until:
                    raise _missing(found, ranks, timeout)
                with suppress(TimeoutError, EOFError, ConnectionError):
                    connection = Connection(listener.accept()[0].detach())
                    rank, environ, job = connection.recv()
                    found.append(Waiter(rank, environ, job, connection))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _missing(found: list[Waiter], ranks: int, timeout: float) -> RunError:
    first = found[0].rank
    missing = {*range(first, first + ranks)} - {waiter.rank for waiter in found}
    return RunError(
        f"{ranks_in_words(missing)} of this host did not call launch within "
        f"{max(timeout, WAIT):g} s: every process that torchrun starts has to call it."
    )


def await_result(folder: str, own: Waiter, timeout: float) -> tuple[Any, dict[int, Any]]:
    """Hand over this rank's job; returns its result, and the ranks that the run has lost."""
    with Connection(_connect(os.path.join(folder, "ranks"), timeout).detach()) as connection:
        try:
            connection.send(own[:3])
            what, *rest = connection.recv()
        except (EOFError, OSError):
            raise RunError(
                f"rank {own.rank} has lost the process that started it, that of LOCAL_RANK 0."
            ) from None
    if what == "failed":
        raise error_of(*rest)
    result, lost = rest
    return pickle.loads(result), lost


def _connect(path: str, timeout: float) -> socket.socket:
    until = monotonic() + max(timeout, WAIT)
    while True:
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
            return sock
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            if monotonic() > until:
                raise RunError(
                    f"LOCAL_RANK 0 of this host did not call launch within "
                    f"{max(timeout, WAIT):g} s: every process that torchrun starts has to call it."
                ) from None
            sleep(0.01)


def summary(error: BaseException) -> tuple[str, str, dict[str, Any]]:
    """An error as other processes receive it: its name, its first line, and what it says of
    ranks."""
    about = {name: getattr(error, name, None) for name in ("rank", "exitcode", "cycle")}
    return type(error).__name__, str(error).partition("\n")[0], about


def error_of(name: str, message: str, about: dict[str, Any]) -> BaseException:
    """The error of a `summary`, for a process in which it has not happened."""
    if name == "ValueError":
        return ValueError(message)
    if name in ("RunInterrupted", "KeyboardInterrupt"):
        return KeyboardInterrupt(message)
    return ERRORS.get(name, RunError)(message, **about)
