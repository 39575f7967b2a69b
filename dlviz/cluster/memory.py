"""Storages: the bytes that a rank really holds, storage by storage, and what each of them is.

A storage is the memory under a tensor; its views share it, so it is counted once:

    step     |--forward--|--backward--|-update-|
    bytes    parameters, and           the rule's state, from the first update on
                 activations, as they are saved; backward frees them
                             gradients, as backward adds them

A storage is found by a dispatch mode, which sees each operation's tensors below autograd, in
backward as well, and is forgotten by a weak reference to it: torch keeps the Python object of a
storage for as long as the storage itself lives, whoever holds it (a view, autograd, C++), so the
reference ends exactly then. A dispatch mode is a thread's: lanes (`comm.lane`) enter it too, other
threads are not watched. Not seen is what an operation needs only while it runs (its workspace).
What a storage is:

    label(kind, ...)         what a strategy says of it, which goes before all others
    parameters               of the model (its buffers too), of a torch optimizer, any nn.Parameter
    gradients                `.grad` of these, as backward adds it
    optimizer                a torch optimizer's state, and what it allocates during its step
    activations              what autograd holds for backward (saved_tensors_hooks), as long as it does
    communication            allocated in a collective, send or receive of this rank
    other                    all else: inputs, temporaries, outputs

A storage that was there before the `with` counts from its first use. Units: bytes. In PyTorch:
torch.distributed._tools.mem_tracker.MemTracker; on GPUs torch.cuda.memory_allocated.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from operator import attrgetter
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

Tensor, Parameter = torch.Tensor, nn.Parameter
PLAIN = (Tensor, Parameter)
KINDS = ("parameters", "gradients", "optimizer", "activations", "communication", "other")
BY_SPAN = {  # kind of the span in which it is allocated -> what it is, unless more is known
    "collective": "communication",
    "send": "communication",
    "recv": "communication",
    "update": "optimizer",
}
_watching: list[Storages] = []  # of this process, the outermost first


class Amounts(NamedTuple):
    """Bytes held at one moment: in `total`, and `by_kind`, which sum to it."""

    total: int
    by_kind: dict[str, int]


def label(kind: str, *tensors: Tensor) -> None:
    """Say what the storages of `tensors` are, one of KINDS. Does nothing where no Storages watches.
    Raises ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"label: kind={kind!r} is none of memory's: use {', '.join(KINDS)}.")
    for storages in _watching:
        storages.know(tensors, said=kind)


def watched() -> AbstractContextManager[Any]:
    """Watch what this thread does inside, if a Storages watches its process."""
    return _on_this_thread([*_watching]) if _watching else nullcontext()


@contextmanager
def _on_this_thread(each: list[Storages]) -> Iterator[None]:
    with ExitStack() as stack:
        for storages in each:
            stack.enter_context(storages.on_this_thread())
        yield


class Held(weakref.ref):
    """A live storage: its bytes, and what is known of it."""

    __slots__ = ("key", "known", "nbytes", "origin", "said", "saved")

    nbytes: int
    said: str | None  # by `label`
    known: str | None  # parameters, gradients, optimizer
    saved: int  # times that autograd holds it
    origin: str  # by where it was allocated

    @property
    def kind(self) -> str:
        return self.said or self.known or ("activations" if self.saved else self.origin)


class Saved:
    """What autograd holds in place of a tensor that it saves; ends when backward has used it."""

    __slots__ = ("held", "released", "tensor")

    def __init__(self, tensor: Tensor, held: Held | None, released: deque[Held]):
        self.tensor, self.held, self.released = tensor, held, released

    def __del__(self) -> None:
        if self.held is not None:
            self.released.append(self.held)


class Seen(TorchDispatchMode):
    """Shows `storages` each operation of the thread that has entered it."""

    def __init__(self, storages: Storages):
        super().__init__()
        self._look = storages.look

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and any(each not in PLAIN for each in types):
            return NotImplemented  # it computes with tensors that are inside of it, seen next
        if kwargs:
            result = func(*args, **kwargs)
            self._look((*args, *kwargs.values(), result))
        else:
            result = func(*args)
            self._look((*args, result))
        return result


class Storages:
    """Counts the storages of this rank while its `with` lasts, with those of `model` from the
    beginning: `now` and `peak`, and in the Trace's memory if there is a `comm`.

        with Storages(comm, model) as storages:
            data.train(comm, model, batches, callback=lambda *_: storages.begin_step())
        storages.peak.by_kind["activations"]

    `peak` is the highest since the last `begin_step()`, or since the beginning, `steps` are the
    peaks of the steps that a `begin_step()` has ended. Raises ValueError for a second `with`.
    """

    def __init__(self, comm: Any = None, model: nn.Module | None = None):
        self.steps: list[Amounts] = []
        self._comm, self._model = comm, model
        self._held: dict[int, Held] = {}  # by id of the storage's Python object
        self._parameters: dict[int, tuple[Any, Any]] = {}  # by id: weak reference, hook
        # Written by finalizers, which run at any time and so change nothing else.
        self._ended: deque[Held] = deque()
        self._released: deque[Held] = deque()
        self._total = self._highest = 0
        self._by_kind = self._at_peak = dict.fromkeys(KINDS, 0)
        self._lock = threading.RLock()
        self._threads: set[int] = set()
        self._updating: set[int] = set()  # threads in a torch optimizer's step
        self._stack = ExitStack()
        self._used = self._on = False

    # -- what it says --------------------------------------------------------------------------
    @property
    def now(self) -> Amounts:
        with self._lock:
            self._settle()
            return Amounts(self._total, {**self._by_kind})

    @property
    def peak(self) -> Amounts:
        return Amounts(self._highest, {**self._at_peak})

    def begin_step(self) -> None:
        """End a step, whose peak is added to `steps`, and begin the next."""
        with self._lock:
            self.steps.append(self.peak)
            self._settle()
            self._highest, self._at_peak = self._total, {**self._by_kind}

    # -- when it watches -----------------------------------------------------------------------
    def __enter__(self) -> Storages:
        if self._used:
            raise ValueError("these Storages have watched already: make others for another `with`.")
        self._used = self._on = True
        if not _watching:
            torch.UntypedStorage.resize_ = _resize  # type: ignore[method-assign]
        _watching.append(self)
        if self._model is not None:
            for p in self._model.parameters():
                self._follow(p)
            self.know(self._model.buffers(), "parameters")
        for handle in (
            register_optimizer_step_pre_hook(lambda *_: self._updating.add(get_ident())),
            register_optimizer_step_post_hook(lambda optimizer, *_: self._updated(optimizer)),
        ):
            self._stack.callback(handle.remove)
        self._stack.enter_context(self.on_this_thread())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        _watching.remove(self)
        if not _watching:
            del torch.UntypedStorage.resize_
        with self._lock:
            self._settle()
            self._on = False
            self._held.clear()
            for _, hook in self._parameters.values():
                hook.remove()
            self._parameters.clear()

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Watch what this thread does inside."""
        thread = get_ident()
        if thread in self._threads:
            yield
            return
        self._threads.add(thread)
        try:
            with Seen(self), saved_tensors_hooks(self._save, attrgetter("tensor")):
                yield
        finally:
            self._threads.discard(thread)

    # -- what it sees --------------------------------------------------------------------------
    def look(self, operands: Iterable[Any]) -> None:
        """Count what an operation was given and what it returned."""
        with self._lock:
            self._settle()
            for each in operands:
                if isinstance(each, Tensor):
                    self._see(each)
                elif isinstance(each, list | tuple):
                    for one in each:
                        if isinstance(one, Tensor):
                            self._see(one)

    def know(
        self, tensors: Iterable[Tensor], known: str | None = None, said: str | None = None
    ) -> None:
        """The storages of `tensors` are `known` to be, or `said` to be, of a kind."""
        with self._lock:
            self._settle()
            for storage in (storage for tensor in tensors for storage in storages_of(tensor)):
                held = self._find(storage)
                if held is not None:
                    before = held.kind
                    held.known, held.said = known or held.known, said or held.said
                    self._move(held, before)

    def resized(self, storage: torch.UntypedStorage) -> None:
        with self._lock:
            self._settle()
            self._find(storage)

    def _see(self, tensor: Tensor) -> None:
        for storage in storages_of(tensor):
            self._find(storage)
        if type(tensor) is Parameter and id(tensor) not in self._parameters:
            self._follow(tensor)

    def _find(self, storage: torch.UntypedStorage) -> Held | None:
        """The storage, counted by the bytes that it has now; None where it has no memory."""
        held, nbytes = self._held.get(id(storage)), storage.nbytes()
        if held is None:
            if storage.device.type == "meta" or not self._on:
                return None
            held = Held(storage, self._end)
            held.key, held.nbytes, held.saved = id(storage), 0, 0
            held.said = held.known = None
            held.origin = self._origin()
            self._held[held.key] = held
        if nbytes != held.nbytes:
            self._total += nbytes - held.nbytes
            self._by_kind[held.kind] += nbytes - held.nbytes
            held.nbytes = nbytes
            if self._total > self._highest:
                self._highest, self._at_peak = self._total, {**self._by_kind}
        return held

    def _follow(self, p: Tensor) -> None:
        """`p` is a parameter, and its gradients are gradients."""
        self.know([p], "parameters")
        if p.grad is not None:
            self.know([p.grad], "gradients")
        if id(p) in self._parameters or not (p.requires_grad and p.is_leaf):
            return
        forget = self._parameters.pop

        def added(p: Tensor) -> None:
            if p.grad is not None:
                self.know([p.grad], "gradients")

        hook = p.register_post_accumulate_grad_hook(added)
        self._parameters[id(p)] = weakref.ref(p, lambda _, key=id(p): forget(key, None)), hook

    def _updated(self, optimizer: torch.optim.Optimizer) -> None:
        self._updating.discard(get_ident())
        for group in optimizer.param_groups:
            for p in group["params"]:
                self._follow(p)
        state = [each for own in optimizer.state.values() for each in own.values()]
        self.know([each for each in state if isinstance(each, Tensor)], "optimizer")

    def _save(self, tensor: Tensor) -> Saved:
        with self._lock:
            self._settle()
            held = next(map(self._find, storages_of(tensor)), None)
            if held is not None:
                before = held.kind
                held.saved += 1
                self._move(held, before)
            return Saved(tensor, held, self._released)

    def _origin(self) -> str:
        """What the storage is that this thread allocates now, as far as is known."""
        if get_ident() in self._updating:
            return "optimizer"
        if self._comm is None:
            return "other"
        opened = self._comm.recorder.lane.open
        return next((BY_SPAN[s.what[0]] for s in reversed(opened) if s.what[0] in BY_SPAN), "other")

    # -- what has ended --------------------------------------------------------------------------
    def _end(self, held: Held) -> None:
        self._held.pop(held.key, None)
        self._ended.append(held)

    def _settle(self) -> None:
        """Take off what has ended since."""
        while self._released:
            held = self._released.popleft()
            before = held.kind
            held.saved -= 1
            self._move(held, before)
        while self._ended:
            held = self._ended.popleft()
            self._total -= held.nbytes
            self._by_kind[held.kind] -= held.nbytes
            held.nbytes = 0

    def _move(self, held: Held, before: str) -> None:
        if held.kind != before:
            self._by_kind[before] -= held.nbytes
            self._by_kind[held.kind] += held.nbytes


def storages_of(tensor: Tensor) -> list[torch.UntypedStorage]:
    """The storages of a tensor: one, or those of the tensors that it is made of."""
    if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [s for name in names for s in storages_of(getattr(tensor, name))]
    if tensor.layout is torch.sparse_coo:
        return [*storages_of(tensor._indices()), *storages_of(tensor._values())]
    return [tensor.untyped_storage()]


_resize_storage = torch._C.StorageBase.resize_


def _resize(storage: torch.UntypedStorage, nbytes: int) -> None:
    """`storage.resize_`, which is no operation, so that no dispatch mode sees it."""
    _resize_storage(storage, nbytes)
    for storages in _watching:
        storages.resized(storage)
