"""Storages: the bytes that a rank really holds, storage by storage, and what each of them is.

A storage is the memory under a tensor. Views share it, so it counts once:

    step         |--------forward--------|--------backward--------|-update-|
    parameters   ##########################################################
    activations  ######  growing  ###############  shrinking
    gradients                                       growing  ##############
    optimizer    (its state, from the first update on)               #######

A dispatch mode finds storages: it sees the tensors of each operation below autograd, those of
backward too. A weak reference ends the count: torch keeps the Python object of a storage for as
long as the storage itself, whoever holds that (a view, autograd, C++), so the reference ends when
the memory is freed. A dispatch mode is a thread's own: lanes enter it too, other threads are not
seen. Nor is what an operation needs only while it runs, its workspace; and what numpy shares with a
tensor is another storage. What a storage is:

    by `label`       what a strategy says of it, before all else
    parameters       and buffers of the model; any nn.Parameter; what a torch optimizer moves
    gradients        the `.grad` of these, once backward has added it
    optimizer        a torch optimizer's state, and what its step, or an update's span, allocates
    activations      what autograd saves for backward (saved_tensors_hooks), until backward used it;
                     what other hooks save instead (torch.utils.checkpoint's) counts as other
    communication    buckets, buffers of messages, what is allocated in a collective's span
    other            inputs, temporaries, outputs

A storage from before the `with` counts from its first use. In PyTorch:
torch.distributed._tools.mem_tracker.MemTracker, and torch.cuda.memory_allocated.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import Parameter
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from dlviz.cluster.recording.levels import Levels

PLAIN = (Tensor, Parameter)
KINDS: tuple[str, ...] = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "communication",
    "other",
)
BY_SPAN = {"collective": "communication", "update": "optimizer"}  # in which it is allocated
_watching: list[Storages] = []  # in this process, the outermost first


class Amounts(NamedTuple):
    """Bytes held at one moment: in `total`, and `by_kind`, of all KINDS, which sum to it."""

    total: int
    by_kind: dict[str, int]


def label(kind: str, *tensors: Tensor) -> None:
    """Say what the storages of `tensors` are, one of KINDS; the last label counts. Does nothing
    where no Storages watches. Raises ValueError for another kind."""
    if kind not in KINDS:
        raise ValueError(f"label: kind={kind!r} is unknown: use {', '.join(KINDS)}.")
    for storages in [*_watching]:
        storages.know(tensors, label=kind)


def watched() -> ExitStack:
    """Watch what this thread does inside, where a Storages watches."""
    stack = ExitStack()
    for storages in [*_watching]:
        stack.enter_context(storages.on_this_thread())
    return stack


class LiveStorage(weakref.ref):
    """A storage that is counted: `nbytes`, and what is known of it."""

    __slots__ = ("key", "known", "label", "nbytes", "origin", "saved")

    key: int  # id of the storage's Python object
    nbytes: int
    label: str | None  # by `label`
    known: str | None  # parameters, gradients or optimizer
    saved: int  # times that autograd holds it
    origin: str  # by where it was allocated

    @property
    def kind(self) -> str:
        return self.label or self.known or ("activations" if self.saved else self.origin)


class SavedTensor:
    """What autograd holds in place of a tensor that it saves, until backward has used it. `counts`
    are those of the Storages that watch: where to say so, and of which storage."""

    __slots__ = ("counts", "tensor", "version")

    def __init__(self, tensor: Tensor):
        self.tensor, self.version = tensor, tensor._version
        self.counts = [count for storages in [*_watching] for count in storages.save(tensor)]

    def __del__(self) -> None:
        for released, storage in self.counts:
            released.append(storage)


def pack_saved(tensor: Tensor) -> SavedTensor | Tensor:
    """The pack hook of saved_tensors_hooks where Storages may watch. Only the innermost hooks are
    called: others that leave `tensor` as it is call this one."""
    if tensor.grad_fn is not None:
        tensor = tensor.detach()  # that function may hold what is returned: no cycle
    return SavedTensor(tensor) if _watching else tensor


def unpack_saved(packed: SavedTensor | Tensor) -> Tensor:
    """The unpack hook beside `pack_saved`. Raises RuntimeError, as torch without hooks does, for a
    tensor that was changed since."""
    if isinstance(packed, Tensor):
        return packed
    if packed.tensor._version != packed.version:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: a tensor of shape {tuple(packed.tensor.shape)} is at version "
            f"{packed.tensor._version}, and {packed.version} was saved."
        )
    return packed.tensor


class Seen(TorchDispatchMode):
    """Shows `storages` what each operation of the thread that enters it was given, and returned,
    unless all of that is known already: most operations allocate nothing."""

    def __init__(self, storages: Storages):
        super().__init__()
        self._known, self._look = storages.knows, storages.look

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would load its compiler, and pass through it at each operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and any(hasattr(each, "__tensor_flatten__") for each in types):
            return NotImplemented  # such a tensor computes with those that it is made of, seen next
        result = func(*args, **kwargs) if kwargs else func(*args)
        operands = (*args, *kwargs.values(), result) if kwargs else (*args, result)
        if not self._known(operands):
            self._look(operands)
        return result


class Storages:
    """Counts the storages of this rank in a `with`, those of `model` from the beginning. With a
    `comm` they are the memory in the Trace, where the rows that strategies state are left out.

        with Storages(comm, model) as storages:
            data.train(comm, model, batches, callback=lambda *_: storages.begin_step())
        storages.peak.by_kind["activations"]

    `now` is what is held (after the `with`: at its end), `peak` the most since the last
    `begin_step()`, or the beginning; `steps` are the peaks of the steps that `begin_step()` ended.
    Raises ValueError for a second `with`. Inside, torch.func's grad, vjp and jacobians refuse to
    run, as under all saved_tensors_hooks.
    """

    def __init__(self, comm: Any = None, model: nn.Module | None = None):
        self.steps: list[Amounts] = []
        self._comm, self._model = comm, model
        self._levels: Levels | None = None
        self._live: dict[int, LiveStorage] = {}  # by id of the storage's Python object
        self._followed: dict[int, tuple[Any, Any]] = {}  # by id of a parameter: reference, hook
        # Finalizers run at any time and on any thread: they add to these, and change nothing else.
        self._ended: deque[LiveStorage] = deque()
        self._released: deque[LiveStorage] = deque()
        self._total = self._highest = 0
        self._by_kind, self._at_peak = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
        self._lock = threading.RLock()
        self._threads: set[int] = set()
        self._updating: set[int] = set()  # threads in a torch optimizer's step
        self._stack = ExitStack()
        self._state = "new"

    @property
    def now(self) -> Amounts:
        with self._lock:
            self._settle()
            return Amounts(self._total, {**self._by_kind})

    @property
    def peak(self) -> Amounts:
        with self._lock:
            return Amounts(self._highest, {**self._at_peak})

    def begin_step(self) -> None:
        """End a step, whose peak is added to `steps`, and begin the next."""
        with self._lock:
            self.steps.append(self.peak)
            self._settle()
            self._highest = -1
            self._changed(row=True)

    # -- when it watches -----------------------------------------------------------------------
    def __enter__(self) -> Storages:
        if self._state != "new":
            raise ValueError("this Storages has watched already: make one for each `with`.")
        self._state = "on"
        for p in [] if self._model is None else self._model.parameters():
            self._follow(p)
        self.know([] if self._model is None else self._model.buffers(), "parameters")
        if self._comm is not None and self._comm.log.levels is None:
            self._comm.log.levels = self._levels = Levels(self._comm.log)
        self._changed(row=True)
        self._watch_resize()
        _watching.append(self)
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
        with self._lock:
            self._settle()
            self._changed(row=True)
            self._state = "over"
            self._live.clear()
            for _, hook in self._followed.values():
                if hook is not None:
                    hook.remove()
        if self._levels is not None:
            self._comm.log.levels = None

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Watch what this thread does inside."""
        thread = get_ident()
        if thread in self._threads:
            yield
            return
        self._threads.add(thread)
        try:
            with Seen(self), saved_tensors_hooks(pack_saved, unpack_saved):
                yield
        finally:
            self._threads.discard(thread)

    # -- what it sees --------------------------------------------------------------------------
    def knows(self, operands: Iterable[Any]) -> bool:
        """Whether all storages of `operands` are counted, by the bytes that they have."""
        live, followed = self._live, self._followed
        for each in operands:
            cls = type(each)
            if cls is Tensor or cls is Parameter:
                try:
                    storage = each.untyped_storage()
                except NotImplementedError:  # sparse
                    return False
                found = live.get(id(storage))
                if found is None or found.nbytes != storage.nbytes():
                    return False
                if cls is Parameter and id(each) not in followed:
                    return False
            elif cls is tuple or cls is list:
                if not self.knows(each):
                    return False
            elif isinstance(each, Tensor):
                return False
        return True

    def look(self, operands: Iterable[Any]) -> None:
        """Count what an operation was given, and what it returned."""
        with self._lock:
            self._settle()
            self._see(operands)
            self._changed()

    def know(
        self, tensors: Iterable[Tensor], known: str | None = None, label: str | None = None
    ) -> None:
        """The storages of `tensors` are `known` to be of a kind, or have the `label`."""
        with self._lock:
            self._settle()
            for storage in (s for tensor in tensors for s in storages_of(tensor)):
                if (live := self._find(storage)) is not None:
                    before = live.kind
                    live.known, live.label = known or live.known, label or live.label
                    self._move(live, before)
            self._changed()

    def _watch_resize(self) -> None:
        """`storage.resize_` is no operation: no dispatch mode sees it."""
        cls: Any = torch.UntypedStorage
        before = cls.resize_

        def resize_(storage: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
            before(storage, nbytes)
            with self._lock:
                self._settle()
                self._find(storage)
                self._changed()
            return storage

        cls.resize_ = resize_
        self._stack.callback(setattr, cls, "resize_", before)

    def save(self, tensor: Tensor) -> list[tuple[deque[LiveStorage], LiveStorage]]:
        """Autograd saves `tensor`: of each of its storages, where to say that it was released."""
        with self._lock:
            self._settle()
            found = [live for s in storages_of(tensor) if (live := self._find(s)) is not None]
            for live in found:
                before = live.kind
                live.saved += 1
                self._move(live, before)
            self._changed()
        return [(self._released, live) for live in found]

    def _see(self, operands: Iterable[Any]) -> None:
        for each in operands:
            if isinstance(each, Tensor):
                for storage in storages_of(each):
                    self._find(storage)
                if type(each) is Parameter and id(each) not in self._followed:
                    self._follow(each)
            elif isinstance(each, list | tuple):
                self._see(each)

    def _find(self, storage: torch.UntypedStorage) -> LiveStorage | None:
        """The storage, counted by its bytes of now; None for one without memory (of meta)."""
        live, nbytes = self._live.get(id(storage)), storage.nbytes()
        if live is None:
            if self._state != "on" or storage.device.type == "meta" or not storage.resizable():
                return None  # or it is not torch's: of a numpy array, or mapped, as between ranks
            live = LiveStorage(storage, self._end)
            live.key, live.nbytes, live.saved = id(storage), 0, 0
            live.label = live.known = None
            live.origin = self._origin()
            self._live[live.key] = live
        elif live.nbytes == nbytes:
            return live
        self._total += nbytes - live.nbytes
        self._by_kind[live.kind] += nbytes - live.nbytes
        live.nbytes = nbytes
        return live

    def _follow(self, p: Tensor) -> None:
        """`p` is a parameter, and its gradients are gradients."""
        self.know([p], "parameters")
        self._gradient(p)
        reference, hook = self._followed.get(id(p), (None, None))
        if hook is None and p.requires_grad and p.is_leaf:
            hook = p.register_post_accumulate_grad_hook(self._gradient)
        if reference is None:
            key, forget = id(p), self._followed.pop
            reference = weakref.ref(p, lambda _: forget(key, None))
        self._followed[id(p)] = reference, hook

    def _gradient(self, p: Tensor) -> None:
        if p.grad is not None:
            self.know([p.grad], "gradients")

    def _updated(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer has ended a step."""
        self._updating.discard(get_ident())
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            self._follow(p)
        state = [each for own in optimizer.state.values() for each in own.values()]
        self.know([each for each in state if isinstance(each, Tensor)], "optimizer")

    def _origin(self) -> str:
        """What this thread allocates now, as far as its place in the program says."""
        if self._updating and get_ident() in self._updating:
            return "optimizer"
        lane = None if self._comm is None else self._comm.recorder.opened
        for span in () if lane is None else reversed(lane.open):
            if (kind := span.what[0]) in BY_SPAN:
                return BY_SPAN[kind]
        return "other"

    # -- what has changed ------------------------------------------------------------------------
    def _end(self, storage: LiveStorage) -> None:
        self._live.pop(storage.key, None)
        self._ended.append(storage)

    def _settle(self) -> None:
        """Take into account what has ended meanwhile."""
        if self._state == "over":
            return
        while self._released:
            storage = self._released.popleft()
            before = storage.kind
            storage.saved -= 1
            self._move(storage, before)
        while self._ended:
            storage = self._ended.popleft()
            self._total -= storage.nbytes
            self._by_kind[storage.kind] -= storage.nbytes
            storage.nbytes = 0

    def _move(self, storage: LiveStorage, before: str) -> None:
        if storage.kind == before:
            return
        self._by_kind[before] -= storage.nbytes
        self._by_kind[storage.kind] += storage.nbytes

    def _changed(self, row: bool = False) -> None:
        if self._total > self._highest:
            self._highest, self._at_peak = self._total, {**self._by_kind}
        if self._levels is not None:
            self._levels.see(self._total, self._by_kind, row)


def storages_of(tensor: Tensor) -> list[torch.UntypedStorage]:
    """The storages of a tensor: one, or those of the tensors that it is made of."""
    if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
        inside = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        parts = [part for part in inside if isinstance(part, Tensor)]
    else:
        try:
            return [tensor.untyped_storage()]
        except NotImplementedError:
            coo = tensor.layout is torch.sparse_coo  # others are opaque
            parts = [tensor._indices(), tensor._values()] if coo else []
    return [storage for part in parts for storage in storages_of(part)]
