"""What `launch` is given: checked, and packed for the ranks."""

from __future__ import annotations

import inspect
import linecache
import os
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any

import cloudpickle
import torch

from dlviz.cluster import program
from dlviz.cluster.parent.inherited import Inherited
from dlviz.cluster.rank import WorkerCall
from dlviz.machine import Machine

BYTES_PER_RANK = 100 * 2**20  # memory that a rank takes beyond what it shares with the fork server
MOST_RANKS = 256


def check(
    worker: Any, ranks: Any, machine: Any, device: Any, timeout: Any, args: Any, kwargs: Any
) -> None:
    """Raise TypeError or ValueError for what `launch` cannot use."""
    if not callable(worker):
        raise TypeError(
            f"worker={worker!r} cannot be called: give a function whose first argument is the Comm."
        )
    if not isinstance(args, tuple | list):
        raise TypeError(f"args={args!r} is no tuple: write args=({args!r},), say.")
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(f"kwargs={kwargs!r} is no dict of names: write kwargs={{'lr': 0.1}}, say.")
    _check_signature(worker, args, kwargs)
    if not isinstance(ranks, Integral) or isinstance(ranks, bool) or int(ranks) < 1:
        raise ValueError(f"ranks={ranks!r} is no number of ranks: use a whole number from 1 up.")
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not float(timeout) > 0:
        raise ValueError(
            f"timeout={timeout!r} is no time to wait: use a number of seconds above 0."
        )
    _check_place(int(ranks), machine, device)


def check_may_lose(may_lose: Any, ranks: int) -> None:
    """Raise TypeError or ValueError unless these are some, not all, of the ranks."""
    if not isinstance(may_lose, Collection) or isinstance(may_lose, str | bytes):
        raise TypeError(
            f"may_lose={may_lose!r} is no tuple of ranks: write may_lose=({may_lose!r},), say."
        )
    for rank in may_lose:
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < ranks:
            raise ValueError(
                f"may_lose names {rank!r}, which is no rank of this run: use 0 to {ranks - 1}."
            )
    if len({*may_lose}) == ranks:
        raise ValueError(
            f"may_lose={may_lose!r} names all {ranks} ranks: leave out at least one, with which "
            "the run goes on."
        )


def check_seed(seed: Any) -> None:
    if seed is not None and (
        not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= int(seed) < 2**63
    ):
        raise ValueError(f"seed={seed!r} has to be a whole number from 0 to 2**63 - 1, or None.")


def _check_place(ranks: int, machine: Any, device: Any) -> None:
    """Raise ValueError for a machine, ranks or device that cannot be used."""
    if machine is not None and not isinstance(machine, Machine):
        raise ValueError(
            f"machine={machine!r} is no Machine: use dlviz.machine.classroom({ranks}), or None."
        )
    if machine is not None and machine.ranks != ranks:
        raise ValueError(
            f"machine has {machine.ranks} ranks and the run has ranks={ranks}: make the two the "
            "same."
        )
    most, here = most_ranks(), ranks_here(ranks)
    if here > most:
        raise ValueError(
            f"ranks={here} are more than this machine can hold: it has memory for about {most}; "
            "use fewer."
        )
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={device!r} is not known: use 'auto', 'cpu' or 'cuda'.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device='cuda' is not available here: torch finds no GPU; use 'cpu' or 'auto'."
        )


def _check_signature(worker: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(worker)
    except (TypeError, ValueError):
        return  # written in C: it checks its arguments itself
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        given = ", ".join(["comm", *map(_brief, args), *(f"{name}=..." for name in kwargs)])
        raise TypeError(
            f"the worker {worker_name(worker)}{signature} cannot be called with ({given}), as "
            f"every rank does ({error}): let it take the Comm first, then args and kwargs."
        ) from None


def ranks_here(ranks: int) -> int:
    """How many of a run's ranks are on this host: under torchrun others may be elsewhere."""
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    return int(os.environ.get("LOCAL_WORLD_SIZE", ranks)) if under_torchrun else ranks


def most_ranks() -> int:
    """How many ranks the memory that is free now can hold, MOST_RANKS at most."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if "MemAvailable" in line)
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.stat") as used:
            taken = next(int(line.split()[1]) for line in used if line.startswith("anon "))
            free = min(free, int(limit.read()) - taken)
    except (OSError, ValueError, StopIteration):
        pass  # no Linux, or no limit
    return max(1, min(free // BYTES_PER_RANK, MOST_RANKS))


def choose_device(device: str, ranks: int) -> str:
    """ "auto" is the GPU where there is one for each rank."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() and torch.cuda.device_count() >= ranks else "cpu"
    return device


def pack_worker(
    worker: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    inherited: Inherited | None = None,
) -> bytes:
    """The job of every rank, pickled; TypeError names what cannot be."""
    cells = {
        name: entry[2]
        for name, entry in linecache.cache.items()
        if len(entry) == 4 and entry[1] is None
    }
    try:
        return program.dumps(WorkerCall(worker, tuple(args), kwargs, cells, inherited))
    except Exception as error:
        why = error
    for name, value in [*((f"args[{i}]", value) for i, value in enumerate(args)), *kwargs.items()]:
        if not _can_be_sent(value):
            raise TypeError(
                f"{name}, a {type(value).__name__}, cannot be sent to the ranks ({why}): pass "
                "something that can be pickled, or make it inside the worker."
            )
    culprit = _culprit(worker, set())
    uses = f", which uses {culprit}," if culprit else ""
    raise TypeError(
        f"the worker {worker_name(worker)}{uses} cannot be sent to the ranks ({why}): make what "
        "cannot be pickled inside the worker."
    )


def _culprit(function: Any, seen: set[int]) -> str:
    """What a function uses that cannot be pickled, "" if unknown."""
    code = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(code) or id(code) in seen:
        return ""
    seen.add(id(code))
    used = inspect.getclosurevars(code)
    for name, value in {**used.globals, **used.nonlocals}.items():
        if not inspect.ismodule(value) and not _can_be_sent(value):
            deeper = _culprit(value, seen)
            return deeper or f"{name}, a {type(value).__name__}"
    return ""


def _can_be_sent(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def worker_name(worker: Any) -> str:
    return getattr(worker, "__name__", repr(worker))


def _brief(value: Any) -> str:
    return repr(value) if isinstance(value, int | float) else type(value).__name__
