"""A Comm on which luck does not help: what a program may not rely on happens the unlucky way.

Between `isend` and `wait()` a message may leave at any time, and between `irecv` and `wait()` it
may land at any time. Guarded, it leaves at `isend` and lands at `wait()`, so that a program that
touches a tensor in between gives the same on every run; and what it did is noted: which requests it
left waiting and what each of its messages held. A Watch, which a Guard is, notes of any calls which
errors a program met and hid, and which of them ready-made code made in its place.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from traceback import walk_stack
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm
from dlviz.grading.feedback import PACKAGE, CheckFailed, shown_line

LIBRARIES = (  # code that is not the program's: dlviz, Python's own, installed packages
    PACKAGE,
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
TORCH = os.path.dirname(torch.__file__)
DISTRIBUTED = os.path.join(TORCH, "distributed", "")
COMMUNICATES = re.compile("send|recv|broadcast|reduce|gather|scatter|all_to_all|barrier")
OWN = (f"{PACKAGE}/cluster/", f"{PACKAGE}/grading/")  # between the student's call and the transport


class Watch:
    """Notes what becomes of a program's calls. `given`: the parts of dlviz through which the
    program may call, as they were handed to it."""

    def __init__(self, *given: str):
        self.borrowed: dict[str, None] = {}  # calls of ready-made code that communicates
        self.raised: list[str] = []  # errors of the calls, with their lines
        self._given = (*OWN, *(f"{PACKAGE}/{part}/" for part in given))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note the calls of torch.distributed from what runs inside."""
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def noting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, which notes its errors and who makes it."""

        @wraps(call)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self._whose(sys._getframe(1))
            try:
                return call(*args, **kwargs)
            except Exception as error:
                if own_frame(sys._getframe(1)):  # in a lane's own thread whoever waits is told
                    line = shown_line(line_of(sys._getframe(1)))
                    said = f"{type(error).__name__}: {error}".rstrip(".")
                    self.raised.append(f"{said}, at {line}")
                raise

        return noted

    def _whose(self, frame: Any) -> None:
        """Note a call from code of dlviz's that is neither the transport nor given nor this."""
        for at, _ in walk_stack(frame):
            file = at.f_code.co_filename
            if file.startswith(PACKAGE) and not file.startswith(self._given):
                part = file.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
                self.borrowed[f"dlviz{part}, {shown_line(line_of(at))}"] = None
                return
            if not file.startswith(LIBRARIES):  # the program's own
                return

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(DISTRIBUTED):
            return
        at = frame
        while at is not None and at.f_code.co_filename.startswith(TORCH):
            at = at.f_back
        own = at is not None and not at.f_code.co_filename.startswith(PACKAGE)
        if own and COMMUNICATES.search(code.co_name):
            called = f"torch.distributed.{code.co_name}, {shown_line(line_of(at))}"
            self.borrowed[called] = None


class Guard(Watch):
    """Stands between a program and its Comm's `send`, `recv`, `isend` and `irecv` (and so
    `sendrecv`)."""

    def __init__(self, comm: Comm):
        super().__init__()
        self.requests: list[Sending | Receiving] = []
        self.sent: list[np.ndarray] = []  # what each message held, in order
        self._isend, self._irecv, self._send = comm.isend, comm.irecv, comm.send
        comm.isend, comm.irecv = self.noting(self.isend), self.noting(self.irecv)
        comm.send, comm.recv = self.noting(self.send), self.noting(comm.recv)

    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> Sending:
        left = self._note(tensor)
        request = Sending(tensor, left, self._isend(left, dst, tag))
        self.requests.append(request)
        return request

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        self._send(self._note(tensor), dst, tag)

    def irecv(self, tensor: torch.Tensor, src: int, tag: int = 0, op: str = "copy") -> Receiving:
        landing = torch.zeros_like(tensor) if isinstance(tensor, torch.Tensor) else tensor
        request = Receiving(tensor, landing, self._irecv(landing, src, tag, op))
        if op == "copy" and tensor.is_floating_point():
            tensor.detach().fill_(torch.nan)  # so that it shows who reads it too early
        request.adds = op == "add"
        self.requests.append(request)
        return request

    def faults(self) -> list[str]:
        """What the program did with its requests that it may not do, a phrase each. Ask when it is
        done."""
        told = [request.fault() for request in self.requests]
        return [fault for fault in dict.fromkeys(told) if fault]

    def _note(self, tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor  # the Comm says what is wrong with it
        left = tensor.detach().clone()
        self.sent.append(left.numpy())
        return left


class _Request:
    waited = False

    def __init__(self, tensor: Any, copy: Any, request: Any):
        self.line = line_of(sys._getframe(2))
        self.tensor = tensor
        self.copy = copy
        self.request = request


class Sending(_Request):
    written = False

    def wait(self) -> None:
        self.written |= not self.waited and not _same(self.tensor, self.copy)
        self.waited = True
        self.request.wait()

    def fault(self) -> str:
        if self.written:
            began = shown_line(self.line)
            return f"wrote into a tensor that was still being sent; the send began at {began}"
        return "" if self.waited else f"never waited for the send at {shown_line(self.line)}"


class Receiving(_Request):
    adds = False

    def wait(self) -> None:
        self.request.wait()
        if not self.waited:
            target = self.tensor.detach()
            target.add_(self.copy) if self.adds else target.copy_(self.copy)
        self.waited = True

    def fault(self) -> str:
        return "" if self.waited else f"never waited for the receive at {shown_line(self.line)}"


def own_frame(frame: Any) -> Any:
    """The first frame of the program's own code from `frame` on, None where there is none."""
    frames = (at for at, _ in walk_stack(frame))
    return next((at for at in frames if not at.f_code.co_filename.startswith(LIBRARIES)), None)


def line_of(frame: Any) -> str:
    """Its `file:line`; that of `frame` where there is none."""
    at = own_frame(frame) or frame
    return f"{at.f_code.co_filename}:{at.f_lineno}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


@contextmanager
def calls_of_dlviz(borrowed: list[str]) -> Iterator[None]:
    """Note the first call into dlviz from what runs inside."""

    def note(frame: Any, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE) or file.startswith(OWN):
            return
        if not line_of(frame).startswith("<frozen importlib"):  # an import alone is no call
            borrowed.append(f"dlviz's {frame.f_code.co_name}, {shown_line(line_of(frame))}")
            sys.setprofile(None)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def check_open(where: str, raised: Sequence[Sequence[str]]) -> None:
    """That no rank met an error and went on; `raised` has what each rank's Watch noted."""
    met = [f"rank {rank} met {errors[0]}" for rank, errors in enumerate(raised) if errors]
    if met:
        raise CheckFailed(
            f"{where}, {met[0]}, and went on",
            "no call goes wrong",
            "an `except` of yours hides this error. Take the `except` away, and mend what the "
            "error tells of.",
        )
