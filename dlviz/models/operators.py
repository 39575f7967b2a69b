"""A module's forward as operators: what torch.export makes of it, as data that ranks can send.

    aten.linear.default(value x, held fc.weight, held fc.bias) -> value linear

An argument is a constant, a value (the batch, or what an operator made) or a tensor that the module
holds. No operator works in place. In PyTorch: torch.export.ExportedProgram, torch.fx.Node.
"""

from __future__ import annotations

import contextlib
import io
import logging
import operator
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves, tree_map

OTHERS = (  # files in which no module's forward is
    str(Path(torch.__file__).parent),
    *(str(Path(__file__).with_name(f"{name}.py")) for name in ("graph", "operators")),
    "<string>", "<eval", "<frozen",
)  # fmt: skip
BATCH = "batch"  # the value that every rank has: the inputs of the model
BY = ("operators", "children")
PARAMETER = "parameter"


class Value(NamedTuple):
    """An argument: a value by its name."""

    name: str


class HeldTensor(NamedTuple):
    """An argument: a parameter or buffer, by its name in the module."""

    name: str


@dataclass(frozen=True)
class Operator:
    """One operator: `name` of its value, `target` by name ("aten.add.Tensor", "child:fc1",
    "method:relu", "parameter" for a parameter itself) or a function, and its arguments."""

    name: str
    target: str | Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def child(self) -> str:
        """The name of the child module that it calls, if it does."""
        kind, _, name = str(self.target).partition(":")
        return name if kind == "child" else ""

    @property
    def needs(self) -> list[str]:
        """The values among its arguments."""
        return [each.name for each in self._arguments(Value)]

    @property
    def holds(self) -> list[str]:
        """The parameters and buffers among its arguments."""
        return [each.name for each in self._arguments(HeldTensor)]

    def without(self, shared: Container[str]) -> Operator:
        """It takes `shared` parameters as values."""

        def known(each: Any) -> Any:
            return (
                Value(each.name) if isinstance(each, HeldTensor) and each.name in shared else each
            )

        args, kwargs = tree_map(known, (self.args, self.kwargs), is_leaf=_is_argument)
        return Operator(self.name, self.target, args, kwargs)

    def _arguments(self, kind: type) -> list[Any]:
        found = tree_leaves((self.args, self.kwargs), is_leaf=_is_argument)
        return [each for each in found if isinstance(each, kind)]

    def run(
        self, module: nn.Module, values: Mapping[str, Any], held: Callable[[str], torch.Tensor]
    ) -> Any:
        """Its value, computed where the batch is."""

        def known(each: Any) -> Any:
            if isinstance(each, Value):
                return values[each.name]
            if isinstance(each, HeldTensor):
                return held(each.name)
            return values[BATCH].device if isinstance(each, torch.device) else each

        args, kwargs = tree_map(known, (self.args, self.kwargs), is_leaf=_is_argument)
        return called(module, self.target)(*args, **kwargs)


def _is_argument(each: Any) -> bool:
    return isinstance(each, Value | HeldTensor)


def called(module: nn.Module, target: str | Callable[..., Any]) -> Callable[..., Any]:
    """What an operator calls."""
    if not isinstance(target, str):
        return target
    kind, _, name = target.partition(":")
    if kind == "child":
        return module.get_submodule(name)
    if kind == PARAMETER:
        return lambda tensor: tensor
    if kind == "method":
        return lambda tensor, *args, **kwargs: getattr(tensor, name)(*args, **kwargs)
    return operator.attrgetter(target)(torch.ops)


def tensor_of(module: nn.Module, name: str) -> torch.Tensor:
    """The parameter or buffer of that name."""
    owner, _, own = name.rpartition(".")
    return getattr(module.get_submodule(owner), own)


class Program(NamedTuple):
    """`operators` in order, the name of the `output`, which value becomes which buffer (`writes`),
    and tensors that are part of the program, by name."""

    operators: list[Operator]
    output: str
    writes: dict[str, str]
    constants: Mapping[str, Any]


def exported(module: nn.Module, batch: torch.Tensor) -> Program:
    """`module`'s forward of `batch` by torch.export. Raises ValueError for a forward that it cannot
    export, with the line."""
    try:
        with quiet():
            program = torch.export.export(module, (batch,))
            if any(map(_is_mutable, program.graph.nodes)):
                program = program.run_decompositions({})
    except Exception as error:
        raise refusal(module, batch, error) from error
    signature = program.graph_signature
    first = {id(each): name for name, each in (*module.named_parameters(), *module.named_buffers())}
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names = {key: first[id(tensor_of(module, name))] for key, name in names.items()}
    names |= signature.inputs_to_lifted_tensor_constants
    nodes = [*program.graph.nodes]
    inputs = {n.name: HeldTensor(names[n.name]) if n.name in names else Value(BATCH)
              for n in nodes if n.op == "placeholder"}  # fmt: skip
    output, *more = signature.user_outputs
    writes = dict(signature.buffers_to_mutate)
    found = _needed(nodes, inputs, {output, *writes})
    if more or output not in {each.name for each in found}:
        raise one_output(module, f"{1 + len(more)} outputs, the first {output}")
    constants = {
        key: program.constants[key] for key in signature.inputs_to_lifted_tensor_constants.values()
    }
    shared = [name for name, _ in module.named_parameters()
              if sum(name in each.holds for each in found) > 1]  # fmt: skip
    found = [
        *(Operator(name, PARAMETER, (HeldTensor(name),), {}) for name in shared),
        *(each.without(shared) for each in found),
    ]
    return Program(found, str(output), writes, constants)


class Calls(fx.Tracer):
    """Sees each call of a child module as one operator."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def traced(module: nn.Module, batch: torch.Tensor) -> Program:
    """`module`'s forward, each call of a child as one operator, by torch.fx. Raises ValueError for
    one whose calls depend on values."""
    try:
        nodes = [*Calls().trace(module).nodes]
    except Exception as error:
        raise refusal(module, batch, error, BY[1]) from error
    inputs = {n.name: Value(BATCH) for n in nodes if n.op == "placeholder"}
    inputs |= {n.name: HeldTensor(n.target) for n in nodes if n.op == "get_attr"}
    output: Any = nodes[-1].args[0]
    if not isinstance(output, fx.Node) or output.name in inputs:
        raise one_output(module, f"the output {output!r}")
    return Program(_needed(nodes, inputs, {output.name}), output.name, {}, {})


def _needed(nodes: list[fx.Node], inputs: Mapping[str, Any], wanted: set[Any]) -> list[Operator]:
    """The operators, in order, that the `wanted` values need."""
    found = []
    for node in reversed(nodes):
        if node.op.startswith("call") and node.name in wanted:
            found.append(_operator(node, inputs))
            wanted |= {*found[-1].needs}
    return found[::-1]


def _operator(node: fx.Node, inputs: Mapping[str, Value | HeldTensor]) -> Operator:
    def known(each: fx.Node) -> Any:
        return inputs.get(each.name) or Value(each.name)

    args, kwargs = fx.map_arg((node.args, node.kwargs), known)  # pyright: ignore
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        target = str(target)
    elif node.op in ("call_module", "call_method"):
        target = f"{'child' if node.op == 'call_module' else 'method'}:{target}"
    return Operator(node.name, target, tuple(args), dict(kwargs))


def _is_mutable(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def one_output(module: nn.Module, what: str) -> ValueError:
    return ValueError(
        f"{type(module).__name__} has {what}: a placed model computes one tensor from the batch, "
        "for a loss. Let its forward return that."
    )


def refusal(
    module: nn.Module, batch: torch.Tensor, error: Exception, by: str = BY[0]
) -> ValueError:
    """Why a module has no graph: the line of its forward, and what to do; or that it does not run
    on such a batch at all."""
    try:
        with torch.no_grad():
            module(batch)
    except Exception as own:
        return ValueError(
            f"{type(module).__name__} does not run on a batch of shape {tuple(batch.shape)} "
            f"({type(own).__name__}: {str(own).partition(chr(10))[0]}): give one that its forward "
            "takes."
        )
    own = [frame for frame in extract_tb(error.__traceback__) if _is_own(frame.filename)]
    where = f" at {own[-1].filename}:{own[-1].lineno}: {own[-1].line}" if own else ""
    first = str(error).partition("\n")[0]
    other = (
        f"make this line independent of values, or take groups by child module (by={BY[1]!r})"
        if by == BY[0]
        else "move this line into a child module"
    )
    return ValueError(
        f"{type(module).__name__} has no graph of its {by}: torch cannot export its forward{where} "
        f"({type(error).__name__}: {first}). Try this: {other}."
    )


def _is_own(file: str) -> bool:
    """Whether it is a user's, neither torch's or Python's nor of this package's graphs."""
    pythons = file.startswith(str(Path(io.__file__).parent)) and "site-packages" not in file
    return not (pythons or file.startswith(OTHERS))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """torch.export prints what it tried; our error says it in a sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
