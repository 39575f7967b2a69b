"""Run a student's tensor-parallel MLP on real ranks, and record the results for a check.

    f.apply(x, comm), g.apply(x, comm)    autograd functions: g sums in forward, f in backward
    mlp = program(comm, state)            on every rank, from the whole weights: it keeps its part
    y = mlp(x)                            the whole MLP's output, on every rank

The MLP is a linear layer, GELU and a linear layer, in float64, with weights in torch's layout
(out, in). Between the two steps every rank changes its part by numbers that it draws itself,
from a generator that is gone when the program continues: then a rank can learn another part's
contribution only from messages.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from traceback import walk_stack
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from dlviz.cluster import Comm, DeadlockError, RunError
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import Dealt, copied, fresh
from dlviz.grading.harness.feedback import PACKAGE, CheckFailed, listed, number, shown_line
from dlviz.grading.harness.guard import TORCH, Watch, line_of
from dlviz.grading.harness.sandbox import why_ended
from dlviz.grading.harness.sizes import EVEN, ONE_ALONE, Size, one_number_alone
from dlviz.machine import Machine
from dlviz.trace import Trace

Program = Callable[..., Any]
State = dict[str, torch.Tensor]
Call = tuple[str, int]  # a collective and the elements of its tensor
STEPS = 2
DIRECTIONS = ("forward", "backward")
WEIGHTS = ("up.weight", "down.weight")
CUT = {"up.weight": 0, "up.bias": 0, "down.weight": 1}  # the dim that is cut; down.bias is whole
NO_GRADIENT = (
    "the output does not depend on x or a parameter. Is a Function called by apply, and is nothing "
    "computed on .data or .detach()?"
)
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "cannot be multiplied": "torch stores a weight as (outputs, inputs). up is cut by its outputs, "
    "down by its inputs: which dim is that of each?",
    "name 'comm' is not defined": "forward of a Function and __init__ get comm, and store it for "
    "the others: forward as ctx.comm for backward, __init__ as self.comm.",
    "must be Tensor, not NoneType": "a function returns nothing: which one has no return?",
    "must be Tensor, not": "a Function is called by apply: CopyToRanks.apply(x, comm) gives a "
    "tensor, CopyToRanks(x, comm) does not.",
    "'NoneType' object has no attribute 'comm'": "apply makes ctx and hands it to forward: a "
    "Function is called by apply.",
    "incorrect number of gradients": "backward returns a gradient for each argument of forward: "
    "that of x, and None for comm.",
    "does not require grad": NO_GRADIENT,
    "non-static forward": "forward and backward of a Function are static: @staticmethod.",
    "modified by an inplace operation": "a tensor that backward needs was changed in place: "
    ".clone() it before all_reduce.",
    "a leaf Variable that requires grad": "an argument is changed in place: .clone() it before "
    "all_reduce.",
    "before Module.__init__() call": "super().__init__() comes first in __init__.",
    "through the graph a second time": "something that step 0 computed is used in step 1: what is "
    "stored from one forward to the next?",
    "collective mismatch": "all ranks call the same all-reduces in the same order, on tensors of "
    "one shape. Which tensors differ in shape between ranks?",
    "is no rank of": "that rank does not exist. For which numbers of ranks does every rank have "
    "the partner that yours asks for?",
    "is invalid for input of size": "the ranks may not divide the numbers of y evenly: "
    "tensor_split makes chunks that differ by one.",
    "positional argument": "forward gets (ctx, x, comm), backward (ctx, gradient), __init__ (self, "
    "comm, state), and apply (x, comm).",
    "object has no attribute": "is that made in __init__, or stored in ctx by forward, before it "
    "is used?",
}
EXPECTS = "every rank returns from forward and backward"
OWN = OwnWork(
    "functions and a module of your own, with all_reduce, or send and recv",
    "where do ranks have to add?",
)


@dataclass(frozen=True)
class MLPSize(Size):
    """The number of ranks, the rows of x, and the widths of the MLP; without inner, of x only."""

    ranks: int
    rows: int
    hidden: int
    inner: int = 0

    def __str__(self) -> str:
        inner = f" and an inner width of {self.inner}" if self.inner else ""
        return f"on {number(self.ranks, 'rank')} with x ({self.rows}, {self.hidden}){inner}"

    @property
    def short(self) -> str:
        return f"{self.ranks}x{self.hidden}" + (f"x{self.inner}" if self.inner else "")

    @classmethod
    def listed(cls, sizes: Sequence[MLPSize]) -> str:
        legend = "ranks x hidden" + " x inner" * (sizes[0].inner > 0)
        return f"at {legend} = {listed([*dict.fromkeys(size.short for size in sizes)])}"

    @staticmethod
    def in_common(passed: Sequence[MLPSize], failed: Sequence[MLPSize]) -> str:
        right, wrong = ({s.ranks for s in sizes} - {1} for sizes in (passed, failed))
        if {2, 4} <= right and wrong and not wrong & {2, 4}:
            return EVEN
        if one_number_alone(passed, failed) == 2:
            return ONE_ALONE.format(2)
        divides = [s.hidden % s.ranks == 0 for s in passed if s.ranks > 1]
        if divides and all(divides) and all(s.hidden % s.ranks for s in failed):
            return (
                "it works if the ranks divide the hidden width. Only the inner width is cut over "
                "the ranks: where does yours rely on the other?"
            )
        return ""

    @property
    def all_reduced(self) -> int:
        """Bytes that a rank sends in a ring all-reduce of a tensor the size of x, with equal
        chunks."""
        return 2 * (self.ranks - 1) * self.rows * self.hidden * 8 // self.ranks

    def own(self, name: str, held: torch.Tensor | None, rank: int) -> torch.Tensor | None:
        """A rank's part of what it holds, the part or the whole; None if it is neither."""
        whole = self.shapes[name]
        if held is None or name not in CUT or held.shape != whole:
            part = self.part(name, torch.empty(whole), rank)
            return held if held is not None and held.shape == part.shape else None
        return self.part(name, held, rank)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the whole MLP's weights."""
        return {
            "up.weight": (self.inner, self.hidden),
            "up.bias": (self.inner,),
            "down.weight": (self.hidden, self.inner),
            "down.bias": (self.hidden,),
        }

    def whole(self, seed: int) -> State:
        """The weights of the whole MLP."""
        shapes = enumerate(self.shapes.items())
        return {name: _draw(seed, i, *shape) for i, (name, shape) in shapes}

    def part(self, name: str, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """A rank's part of a whole weight or bias."""
        return tensor.tensor_split(self.ranks, CUT[name])[rank] if name in CUT else tensor

    def batch(self, seed: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """x and the gradient of y, the same on every rank."""
        return tuple(_draw(seed, 10 + step, 2, self.rows, self.hidden))  # pyright: ignore


def _draw(seed: int, place: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + place)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@dataclass(frozen=True)
class MLPStep:
    """One step of a rank: its part before it, the output, the gradients of its part and of x
    ("x"), its collectives in each direction, the bytes of those that leave no messages, the
    arguments that it changed, and the number of its own Functions behind the output."""

    part: State
    output: torch.Tensor
    gradients: dict[str, torch.Tensor | None]
    calls: dict[str, list[Call]]
    unseen: dict[str, float]
    changed: list[str]
    functions: int = 0


@dataclass
class Sharded(Left):
    """Results of a rank: its steps, and what it did against the rules."""

    steps: list[MLPStep] = field(default_factory=list)
    odd: list[tuple[str, str]] = field(
        default_factory=list
    )  # a missing module or output, and a hint
    retained: list[str] = field(default_factory=list)  # whole weights still in memory
    sliced: list[str] = field(default_factory=list)  # those of which a parameter is a slice
    whole: list[str] = field(default_factory=list)  # later lines that used a whole weight


@dataclass(frozen=True)
class Parallel:
    """A run of the student's MLP."""

    size: MLPSize
    seed: int
    left: list[Sharded]
    trace: Trace

    def sent(self, direction: str, step: int) -> np.ndarray:
        """Bytes that each rank sent in one direction of a step: those of its messages, and a
        ring's for the backend's own collectives."""
        spans, messages = self.trace.spans, self.trace.messages
        found = np.array([own.steps[step].unseen[direction] for own in self.left])
        phases = (spans.kind == "phase") & (spans.name == direction) & (spans.step == step)
        for rank, begin, end in zip(
            spans.rank[phases], spans.start[phases], spans.end[phases], strict=True
        ):
            own = (messages.src == rank) & (messages.sent >= begin) & (messages.sent <= end)
            found[rank] += messages.nbytes[own].sum()
        return found


def attempt(
    program: Program, size: MLPSize, steps: int = STEPS, machine: Machine | None = None
) -> Parallel:
    """Run the student's MLP forward and backward.

    Raises CheckFailed, caused by the RunError if any, if the run does not finish, if ready-made
    code did the work, or if there is no output to judge.
    """
    seed = int(np.random.default_rng().integers(1000))
    run = harness.attempt(
        trained, size.ranks, program, size, seed, steps, machine=machine,
        where=size, own=OWN, expects=EXPECTS, known=_known(size),
    )  # fmt: skip
    refuse_odd(size, run.results)
    return Parallel(size, seed, run.results, run.trace)


def _known(size: MLPSize) -> Callable[[RunError], str]:
    """Finds a hint for a run that did not finish."""
    return lambda error: (
        _why_idle(error)
        or why_ended(error, {"must match the": _why_shapes(str(error), size), **KNOWN})
    )


def _why_idle(error: RunError) -> str:
    """A hint if ranks wait for ever because one takes no part in the others' sum."""
    if not isinstance(error, DeadlockError) or error.trace is None:
        return ""
    spans, table = error.trace.spans, error.trace.messages
    for step, direction in product(range(STEPS), DIRECTIONS):
        busy: dict[int, bool] = {}
        for row in spans[(spans.step == step) & (spans.name == direction)].rows():
            sent = (table.src == row.rank) & (table.sent >= row.start) & (table.sent <= row.end)
            taken = (table.dst == row.rank) & (table.received >= row.start)
            busy[row.rank] = bool((sent | (taken & (table.received <= row.end))).any())
        idle = [rank for rank, own in busy.items() if not own]
        if idle and any(busy.values()):
            return (
                f"in {direction} of step {step} rank {idle[0]} neither sends nor receives, while "
                "others do: it takes no part in their sum. What there depends on the rank?"
            )
    return ""


def _why_shapes(text: str, size: MLPSize) -> str:
    """A hint if two tensors do not fit together, by their widths."""
    found = re.search(r"\((\d+)\) must match the (?:existing )?size[^(]*\((\d+)\)", text)
    widths = {int(each) for each in found.groups()} if found else set()
    part = size.inner // size.ranks
    if widths == {part, size.inner}:
        return (
            f"one has a part of the inner width, {part}, and the other all of it, {size.inner}: "
            "up.bias is cut like the outputs of up."
        )
    if size.hidden in widths and widths & {part, size.inner}:
        return (
            "one is as wide as x, the other as z or a part of it. Which bias belongs to which of "
            "the two products?"
        )
    return "two tensors have different shapes. Which shapes do x, z, y and the biases have?"


def refuse_odd(size: MLPSize, left: Sequence[Sharded]) -> None:
    """Raise CheckFailed if there is no output to judge."""
    for rank, own in enumerate(left):
        for seen, hint in own.odd:
            raise CheckFailed(
                f"{size}, on rank {rank} {seen}",
                "an nn.Module whose output is a tensor of the shape of x",
                hint,
            )


class CallWatch(Watch):
    """Records a program's messages and collectives."""

    def __init__(self, comm: Comm):
        super().__init__("collectives")
        self.calls: list[Call] = []
        for name in ("send", "recv", "isend", "irecv"):
            setattr(comm, name, self.recording(getattr(comm, name)))
        self._unseen = 0.0
        agree, collective = comm.agree, comm.collective

        def heard(op: str, tensor: torch.Tensor | None, root: int = -1) -> int:
            if tensor is not None:
                self.calls.append((op, tensor.numel()))
            return agree(op, tensor, root)

        def by_backend(op: str, tensor: Any, move: Any, root: int = -1, scale: int = 1) -> None:
            if (
                tensor is not None
            ):  # a ring sends each rank's part to all others, or twice that for an all-reduce
                rounds = (1 + (op == "all_reduce")) * (comm.size - 1)
                self._unseen += rounds * tensor.nbytes * scale / comm.size
            collective(op, tensor, move, root, scale)

        comm.agree, comm.collective = self.recording(heard), by_backend

    def heard(self) -> tuple[list[Call], float]:
        """The collectives since the last call, and the bytes that a ring would send for the
        backend's, which leave no messages."""
        found = self.calls, self._unseen
        self.calls, self._unseen = [], 0.0
        return found


class Elements(TorchDispatchMode):
    """Records the lines of a program that work on a tensor of `most` elements or more; on a
    paced run its matrix products are spans that take their FLOPs' time."""

    def __init__(self, comm: Comm, most: float):
        super().__init__()
        self.lines: list[str] = []
        self.direction = "forward"
        self._comm = comm
        self._most = most

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        factors = [each for each in args if isinstance(each, torch.Tensor)][-2:]
        if self._comm.machine is not None and func._overloadpacket in PRODUCTS:
            (m, k), (_, n) = (each.shape for each in factors)
            name, seconds = f"{m}x{k}·{k}x{n}", 2 * m * k * n / self._comm.machine.device.flops
            with self._comm.compute(self.direction, name, seconds):
                out = func(*args, **(kwargs or {}))
        else:
            out = func(*args, **(kwargs or {}))
        large = [each for each in (*factors, out) if self._is_large(each)]
        if large and not _inside_dlviz(sys._getframe(1)):
            where = shown_line(line_of(sys._getframe(1)))
            self.lines.append(f"{tuple(large[0].shape)}, in {self.direction}, {where}")
        return out

    def _is_large(self, each: Any) -> bool:
        return isinstance(each, torch.Tensor) and each.numel() >= self._most


def _inside_dlviz(frame: Any) -> bool:
    """Whether a dlviz collective works here, not the program's own lines or backward."""
    files = (at.f_code.co_filename for at, _ in walk_stack(frame))
    file = next(file for file in files if not file.startswith(TORCH))
    return file.startswith(PACKAGE) and file != __file__


PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm}  # pyright: ignore


def trained(comm: Comm, program: Program, size: MLPSize, seed: int, steps: int) -> Sharded:
    """Run the student's MLP on a rank."""
    left, watch = Sharded(), CallWatch(comm)
    whole = float("inf") if size.ranks == 1 else size.hidden * size.inner
    with watch.watching():
        model = _loaded(comm, program, size, seed, left)
        parameters = {} if model is None else _named(model)
        for step in range(steps if model is not None else 0):
            assert model is not None
            model.zero_grad()
            watch.heard()
            (x, gradient), (x_given, gradient_given) = (size.batch(seed, step) for _ in range(2))
            x.requires_grad_()
            part = {name: copied(p) for name, p in parameters.items()}
            heard: dict[str, tuple[list[Call], float]] = {}
            if comm.machine is not None:
                comm.barrier()  # so that all begin the paced step at the same time
            with Elements(comm, whole) as elements:
                with comm.span("phase", "forward", step=step):
                    output = model(x)
                heard["forward"] = watch.heard()
                if odd := _odd(output, x):
                    left.odd.extend(odd)
                    break
                functions = _functions(output)
                elements.direction = "backward"
                with comm.span("phase", "backward", step=step):
                    output.backward(gradient)
                heard["backward"] = watch.heard()
            calls = {direction: each for direction, (each, _) in heard.items()}
            unseen = {direction: nbytes for direction, (_, nbytes) in heard.items()}
            changed = ["x"] * (not torch.equal(x, x_given))
            changed += ["the gradient of y"] * (not torch.equal(gradient, gradient_given))
            found = {name: p.grad for name, p in {**parameters, "x": x}.items()}
            gradients = {name: None if g is None else copied(g) for name, g in found.items()}
            step_left = MLPStep(part, copied(output), gradients, calls, unseen, changed, functions)
            left.steps.append(step_left)
            left.whole.extend(elements.lines[:1])
            _change(parameters, _draw(seed, 20 + step, size.hidden))
    left.borrowed.extend(watch.borrowed)
    left.raised.extend(watch.raised)
    return left


def _loaded(
    comm: Comm, program: Program, size: MLPSize, seed: int, left: Sharded
) -> nn.Module | None:
    """The student's module; records the whole weights that it still holds."""
    state = size.whole(seed)
    memory = {name: StorageWeakRef(state[name].untyped_storage()) for name in WEIGHTS}
    with comm.span("phase", "load"):
        model = program(comm, dict(state))
    state.clear()
    if not isinstance(model, nn.Module):
        left.odd.append(
            (
                f"there is an object of {type(model).__name__}, which is no nn.Module",
                "class ...(nn.Module), and super().__init__() first.",
            )
        )
        return None
    gc.collect()
    left.retained.extend(name for name in WEIGHTS if size.ranks > 1 and not memory[name].expired())
    lie = [StorageWeakRef(p.untyped_storage()) for p in model.parameters()]
    left.sliced.extend(name for name in left.retained if memory[name] in lie)
    return model


def _named(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by the names of the whole weights: up_weight is up.weight."""
    known = {name.replace(".", "_"): name for name in (*CUT, "down.bias")}
    parameters = [(name.replace(".", "_"), p) for name, p in model.named_parameters()]
    return {known.get(name, name): p for name, p in parameters}


def _odd(output: Any, x: torch.Tensor) -> list[tuple[str, str]]:
    """Why backward cannot start from the output, and a hint; empty if it can."""
    if not isinstance(output, torch.Tensor):
        return [(f"forward returns {output!r:.40}", "which line returns y?")]
    if output.shape != x.shape:
        shape = tuple(output.shape)
        return [(f"the output has the shape {shape}", "y has a row for each row of x, as wide.")]
    return [] if output.requires_grad else [("the output has no backward", NO_GRADIENT)]


def _functions(output: torch.Tensor) -> int:
    """The number of autograd functions written in Python behind the output."""
    seen, left = set(), [output.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            left += [each for each, _ in node.next_functions]
    return sum(isinstance(node, torch.autograd.function.BackwardCFunction) for node in seen)


def _change(parameters: dict[str, nn.Parameter], bias: torch.Tensor) -> None:
    """Change parameters as an optimizer would: parts by a rank's own numbers, whole ones by
    `bias`."""
    own = fresh()
    with torch.no_grad():
        for name, p in parameters.items():
            if name in CUT:
                p += torch.randn(p.shape, generator=own, dtype=p.dtype)
            elif p.shape == bias.shape:
                p += bias


@dataclass
class Passed(Left):
    """What a rank put into f or g and got from it, in both directions."""

    given: dict[str, torch.Tensor]  # by direction
    got: dict[str, torch.Tensor | None]
    changed: list[str]


def attempt_function(function: Program, size: MLPSize, draws: Sequence[State] = ()) -> list[Passed]:
    """Call f or g on a tensor for each rank that no other rank gets, or on those of `draws`.
    Raises CheckFailed as `attempt` does."""
    given = draws or drawn(size)
    run = harness.attempt(
        passed, size.ranks, function, Dealt(given),
        where=size, own=OWN, expects=EXPECTS, known=_known(size),
    )  # fmt: skip
    return [replace(own, given=each) for own, each in zip(run.results, given, strict=True)]


def drawn(size: MLPSize) -> list[State]:
    """What each rank puts into f or g, by direction."""
    generator, shape = fresh(), (size.rows, size.hidden)
    return [
        {
            direction: torch.randn(shape, generator=generator, dtype=torch.float64)
            for direction in DIRECTIONS
        }
        for _ in range(size.ranks)
    ]


def passed(comm: Comm, function: Program, dealt: Dealt[State]) -> Passed:
    """Run f or g on a rank."""
    watch, given = CallWatch(comm), dealt.take(comm.rank)
    x, gradient = (given[direction].clone() for direction in DIRECTIONS)
    x.requires_grad_()
    got: dict[str, torch.Tensor | None] = dict.fromkeys(DIRECTIONS)
    with watch.watching():
        y = function.apply(x, comm)
        if isinstance(y, torch.Tensor):
            got["forward"] = copied(y)
            if y.requires_grad and y.shape == gradient.shape:
                y.backward(gradient)
                got["backward"] = None if x.grad is None else copied(x.grad)
    changed = ["x"] * (not torch.equal(x, given["forward"]))
    changed += ["the gradient"] * (not torch.equal(gradient, given["backward"]))
    return Passed(given, got, changed, borrowed=list(watch.borrowed), raised=watch.raised)
