"""A Comm without luck: whatever a program may not rely on happens in the worst possible order.

Between `isend` and `wait()` a message may leave at any time, and between `irecv` and `wait()` it
may land at any time. Guarded, it leaves at `isend` and lands at `wait()`, so that a program that
touches a tensor in between gives the same result on every run. A Guard also records which
requests were never waited for, and what each message held. A Watch, its base class, records
errors of calls that the program hid, and calls that ready-made code made in its place. Calls of
the checks' own code, of functions that read others' frames and objects, and of functions that
would end the watch count as ready-made code too.
"""

from __future__ import annotations

import _thread
import dis
import gc
import inspect
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import wraps
from traceback import walk_stack
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm
from dlviz.grading.harness.feedback import PACKAGE, shown_line

LIBRARIES = (  # code that is not the program's: dlviz, Python's own, installed packages
    PACKAGE,
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
)
TORCH = os.path.dirname(torch.__file__)
DISTRIBUTED = os.path.join(TORCH, "distributed", "")
COMMUNICATES = re.compile("send|recv|broadcast|reduce|gather|scatter|all_to_all|barrier")
TRANSPORT, CHECKS = f"{PACKAGE}/cluster/", f"{PACKAGE}/grading/"
OWN = (TRANSPORT, CHECKS)  # between the student's call and the transport
PEEKS = {  # functions that read others' frames and objects, or escape a watch
    sys._getframe, vars(sys)["_current_frames"], sys.setprofile, sys.settrace, gc.get_objects,
    gc.get_referrers, gc.get_referents, _thread.start_new_thread,
}  # fmt: skip
REACHES = {  # attributes that lead to them without a call
    "f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "cr_frame", "ag_frame",
    "cell_contents", "__closure__", "__globals__", "__builtins__",
}  # fmt: skip
READERS = {  # functions of Python's library that do the same or read a library's source, by file
    inspect.__file__: {"currentframe", "stack", "trace", "getouterframes", "findsource"},
    threading.__file__: {"setprofile", "settrace", "setprofile_all_threads"},
}


class Watch:
    """Records errors and borrowed calls of a program. `given`: the parts of dlviz that the
    program may use."""

    def __init__(self, *given: str):
        self.borrowed: dict[str, None] = {}  # calls of ready-made code that communicates
        self.raised: list[str] = []  # errors of the calls, with their lines
        self._given = (*OWN, *(f"{PACKAGE}/{part}/" for part in given))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record calls of torch.distributed and of the checks' own code inside the block, also
        from threads that it starts."""
        with _profiling(self._profile):
            yield

    def recording(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, wrapped to record its errors and its caller."""

        @wraps(call)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._whose(sys._getframe(1))
            try:
                return call(*args, **kwargs)
            except Exception as error:
                if own_frame(
                    sys._getframe(1)
                ):  # in a lane's own thread the error is raised by wait()
                    line = shown_line(line_of(sys._getframe(1)))
                    said = f"{type(error).__name__}: {error}".rstrip(".")
                    self.raised.append(f"{said}, at {line}")
                raise

        return recorded

    def _whose(self, frame: Any) -> None:
        """Record a call from dlviz code other than the transport, this package and `given`."""
        for at, _ in walk_stack(frame):
            file = at.f_code.co_filename
            if file.startswith(PACKAGE) and not file.startswith(self._given):
                part = file.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
                self.borrowed[f"dlviz{part}, {shown_line(line_of(at))}"] = None
                return
            if not file.startswith(LIBRARIES):  # the program's own
                return

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        if called := reached(frame, event, argument):
            self.borrowed[called] = None
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
    """Wraps a Comm's `send`, `recv`, `isend` and `irecv` (and so `sendrecv`)."""

    def __init__(self, comm: Comm):
        super().__init__()
        self.requests: list[Sending | Receiving] = []
        self.sent: list[np.ndarray] = []  # what each message held, in order
        self._isend, self._irecv, self._send = comm.isend, comm.irecv, comm.send
        comm.isend, comm.irecv = self.recording(self.isend), self.recording(self.irecv)
        comm.send, comm.recv = self.recording(self.send), self.recording(comm.recv)

    def isend(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> Sending:
        left = self._record(tensor)
        request = Sending(tensor, left, self._isend(left, dst, tag))
        self.requests.append(request)
        return request

    def send(self, tensor: torch.Tensor, dst: int, tag: int = 0) -> None:
        self._send(self._record(tensor), dst, tag)

    def irecv(self, tensor: torch.Tensor, src: int, tag: int = 0, op: str = "copy") -> Receiving:
        landing = torch.zeros_like(tensor) if isinstance(tensor, torch.Tensor) else tensor
        request = Receiving(tensor, landing, self._irecv(landing, src, tag, op))
        if op == "copy" and tensor.is_floating_point():
            tensor.detach().fill_(torch.nan)  # so that an early read shows
        request.adds = op in ("sum", "add")
        self.requests.append(request)
        return request

    def faults(self) -> list[str]:
        """Misuse of the program's requests, a phrase each; to be called when the program has
        returned."""
        summary = [request.fault() for request in self.requests]
        return [fault for fault in dict.fromkeys(summary) if fault]

    def _record(self, tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor  # the Comm reports the error
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
    """The innermost frame of the program's own code from `frame` outward, None if there is none."""
    frames = (at for at, _ in walk_stack(frame))
    return next((at for at in frames if not at.f_code.co_filename.startswith(LIBRARIES)), None)


def line_of(frame: Any) -> str:
    """The `file:line` of `own_frame`, or of `frame` if there is none."""
    at = own_frame(frame) or frame
    return f"{at.f_code.co_filename}:{at.f_lineno}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def reached(frame: Any, event: str, argument: Any) -> str:
    """A forbidden access in an event of a profile function, in words, else "": a call of PEEKS
    or READERS, code with an attribute of REACHES, or a call of the checks' own functions and
    records."""
    if event == "c_call":
        direct = not frame.f_code.co_filename.startswith(LIBRARIES)
        if argument in PEEKS and direct and _is_program(frame):
            return f"{argument.__qualname__}, {shown_line(line_of(frame))}"
        return ""
    code = frame.f_code
    file = code.co_filename
    if event != "call":
        return ""
    if not file.startswith(LIBRARIES):
        found = REACHES.intersection(code.co_names) and _attributes(code) & REACHES
        return f"{min(found)}, {shown_line(line_of(frame))}" if found and _is_program(frame) else ""
    if code.co_name == "<module>" or (file not in READERS and not file.startswith(CHECKS)):
        return ""  # an import alone is no call
    if file in READERS:
        known = code.co_name in READERS[file]
    else:
        known = "." not in code.co_qualname or is_dataclass(type(frame.f_locals.get("self")))
    if known and _is_program(frame.f_back):
        part = re.sub(r"^.*/|\.py$", "", file)
        return f"{part}.{code.co_qualname}, {shown_line(line_of(frame.f_back or frame))}"
    return ""


def _attributes(code: Any) -> set[str]:
    """The names of the attributes that code reads."""
    return {each.argval for each in dis.get_instructions(code) if "ATTR" in each.opname}


def _is_program(frame: Any) -> bool:
    """Whether the program makes the call, directly or through Python's library; not torch, which
    calls the checks' hooks. A thread without other frames calls for the program."""
    for at, _ in walk_stack(frame):
        file = at.f_code.co_filename
        if file.startswith((PACKAGE, TORCH)):
            return False
        if file.startswith("<frozen "):
            continue
        if file.startswith("<"):  # generated code, such as a dataclass's __init__
            module = sys.modules.get(at.f_globals.get("__name__", ""))
            file = getattr(module, "__file__", None) or "the program's"
        if not file.startswith(LIBRARIES):
            return True
    return True


@contextmanager
def _profiling(hears: Callable[[Any, str, Any], None]) -> Iterator[None]:
    here, others = sys.getprofile(), threading.getprofile()
    threading.setprofile(hears)
    sys.setprofile(hears)
    try:
        yield
    finally:
        sys.setprofile(here)
        threading.setprofile(others)  # pyright: ignore[reportArgumentType]


@contextmanager
def refusing() -> Iterator[None]:
    """Raise RuntimeError at the end if the block made a forbidden access."""
    found: list[str] = []

    def hear(frame: Any, event: str, argument: Any) -> None:
        if called := reached(frame, event, argument):
            found.append(called)

    with _profiling(hear):
        yield
    if found:
        raise RuntimeError(f"ready-made code was called: {found[0]}")


@contextmanager
def calls_of_dlviz(borrowed: list[str], *given: str) -> Iterator[None]:
    """Record the first call into dlviz inside the block, also from threads that it starts. `given`:
    the files and folders of dlviz that the program may use."""
    free = (*OWN, *(f"{PACKAGE}/{part}" for part in given))

    def hear(frame: Any, event: str, argument: Any) -> None:
        if borrowed:
            return
        if called := reached(frame, event, argument):
            borrowed.append(called)
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(PACKAGE) or file.startswith(free):
            return
        if not line_of(frame).startswith("<frozen importlib"):  # an import alone is no call
            borrowed.append(f"dlviz's {frame.f_code.co_name}, {shown_line(line_of(frame))}")

    with _profiling(hear):
        yield
