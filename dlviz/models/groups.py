"""Which operators stay together, as groups, and which groups need whose values.

    stem -- relu --+-- left ----------+-- add -- head
                   +-- right -- tanh -+

    four groups: (stem relu), (left), (right tanh), (add head)

A parameter stays with its operator. Operators without one stay with a neighbour if the two could
not run beside each other anyway: in a chain, or at the end of a residual path. So do operators that
share a buffer, and the parts of a value of several tensors.
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import getitem

from torch import nn

from dlviz.models.operators import BATCH, Operator, Program


@dataclass(frozen=True)
class OperatorGroup:
    """Operators that stay together, in order. `inputs` are values of other groups, `outputs` those
    that others need, `parameters` and `buffers` what it holds, by name; `writes`: value -> the
    buffer that it becomes."""

    operators: tuple[Operator, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]
    writes: dict[str, str]

    @property
    def name(self) -> str:
        """The child that it calls, the modules of its parameters, or its last operator."""
        children = [each.child for each in self.operators if each.child]
        owners = [*dict.fromkeys(each.rpartition(".")[0] for each in self.parameters)]
        return " ".join(filter(None, children or owners)) or self.operators[-1].name


def grouped(
    module: nn.Module, program: Program, children: bool
) -> tuple[tuple[OperatorGroup, ...], tuple[tuple[int, ...], ...]]:
    """The groups of a program, parents first, and the parents of each. `children`: it calls child
    modules, and those that share a parameter or a buffer are one group."""
    operators = program.operators
    made = {each.name: at for at, each in enumerate(operators)}
    needs = [[made[name] for name in each.needs if name in made] for each in operators]
    parameters = {name for name, _ in module.named_parameters()}
    holds = [_held(module, each) for each in operators]
    written = {*program.writes.values()}
    together = [
        [at for at, own in enumerate(holds) if name in own]
        for name in dict.fromkeys(chain.from_iterable(holds))
        if children or name in written
    ]
    for value, buffer in program.writes.items():
        together.append([made[value], *(at for at, own in enumerate(holds) if buffer in own)])
    for at, each in enumerate(operators):
        if each.target is getitem:  # one of several tensors of a value
            together.append([at, *needs[at]])
        used = each.name == program.output or any(at in own for own in needs)
        if not used and not needs[at]:  # a count of batches: with what follows
            together.append([at, at + 1 if at + 1 < len(operators) else at - 1])
    alone = [bool(each.child) or not parameters.isdisjoint(own)
             for each, own in zip(operators, holds, strict=True)]  # fmt: skip
    anchored = [bool(own) or BATCH in each.needs
                for each, own in zip(operators, holds, strict=True)]  # fmt: skip
    sets = merged(needs, together, alone, anchored)
    where = {at: number for number, own in enumerate(sets) for at in own}
    across = {p for at, own in enumerate(needs) for p in own if where[p] != where[at]}
    groups, parents = [], []
    for number, own in enumerate(sets):
        inputs = dict.fromkeys(p for at in own for p in needs[at] if where[p] != number)
        held = dict.fromkeys(name for at in own for name in holds[at])
        outputs = (at for at in own if at in across or operators[at].name == program.output)
        groups.append(
            OperatorGroup(
                tuple(operators[at] for at in own),
                tuple(operators[at].name for at in inputs),
                tuple(operators[at].name for at in outputs),
                tuple(name for name in held if name in parameters),
                tuple(name for name in held if name not in parameters),
                {v: buffer for v, buffer in program.writes.items() if where[made[v]] == number},
            )
        )
        parents.append(tuple(dict.fromkeys(where[at] for at in inputs)))
    return tuple(groups), tuple(parents)


def _held(module: nn.Module, operator: Operator) -> list[str]:
    """The parameters and buffers that an operator needs, each by its first name in the module."""
    if not operator.child:
        return operator.holds
    child = module.get_submodule(operator.child)
    own = {id(tensor) for tensor in (*child.parameters(), *child.buffers())}
    return [name for name, each in (*module.named_parameters(), *module.named_buffers())
            if id(each) in own]  # fmt: skip


def merged(
    needs: Sequence[Sequence[int]],
    together: Sequence[Sequence[int]],
    alone: Sequence[bool],
    anchored: Sequence[bool],
) -> list[list[int]]:
    """Sets of operators, parents first: those `together`, those that would need each other, and
    those that could not run beside each other anyway: one with its only user, where it needs what
    else that needs (a chain, a residual path), or nothing, unless it is `anchored` to the batch or
    to a parameter. Of those that stand `alone` no two."""
    label = [*range(len(needs))]  # of each operator the set

    def parents() -> dict[int, set[int]]:
        found: dict[int, set[int]] = {each: set() for each in label}
        for at, own in enumerate(needs):
            found[label[at]] |= {label[p] for p in own} - {label[at]}
        return found

    for members in filter(None, together):
        old = {label[each] for each in members}
        label = [min(old) if each in old else each for each in label]
    while True:
        needed = parents()
        try:
            waiting = [*graphlib.TopologicalSorter(needed).static_order()]
            break
        except graphlib.CycleError as error:
            cycle = {*error.args[1]}
            label = [min(cycle) if each in cycle else each for each in label]
    users = {each: {user for user in needed if each in needed[user]} for each in needed}
    heads = {label[at] for at, single in enumerate(alone) if single}
    rooted = {label[at] for at, own in enumerate(anchored) if own}
    while waiting:
        each = waiting.pop()
        if len(users.get(each, ())) != 1:
            continue
        (user,) = users[each]
        constant = not needed[each] and each not in rooted
        beside = needed[user] - {each} - needed[each]
        if {each, user} <= heads or (beside and not constant):
            continue
        label = [user if own == each else own for own in label]
        for parent in needed[each]:
            users[parent] = users[parent] - {each} | {user}
        needed[user] = (needed[user] | needed.pop(each)) - {each}
        del users[each]
        for known in (heads, rooted):
            known |= {user} if each in known else set()
        waiting += [*needed[user], user]
    return _in_order(label, parents())


def _in_order(label: Sequence[int], parents: Mapping[int, set[int]]) -> list[list[int]]:
    """The operators of each set, parents first, else by their first operator."""
    from dlviz.sim.placement import Graph

    sets: dict[int, list[int]] = {}
    for at, each in enumerate(label):
        sets.setdefault(each, []).append(at)
    number = {each: place for place, each in enumerate(sets)}
    zeros = [0] * len(sets)
    graph = Graph(zeros, [[number[p] for p in parents[each]] for each in sets], zeros)
    found = [*sets.values()]
    return [found[at] for at in graph.in_order()]
