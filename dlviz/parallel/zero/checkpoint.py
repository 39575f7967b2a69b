"""Shards of a training in files that any other number of ranks can load.

    rank 0   0.weight 0.bias            each rank writes every N-th layer, whole,
    rank 1            2.weight 2.bias   and reads of all layers what its shards need

The files are those of torch.distributed.checkpoint: parameters in their own shapes, as
"model.<name>", and the state of the update rule as "optimizer.state.<name>.<key>", with torch's
keys. So torch reads them, into a plain model or one of FSDP2, and what torch has written under
these names is read here. The rate is not in them: `rule=` and `lr=` give it.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.update_rules import AdaGrad, Adam, Momentum, RMSProp, Rule, TorchRule
from dlviz.parallel.zero.shards import FlatLayer

KEYS = {  # torch's names of what a rule stores
    Momentum: ("momentum_buffer",),
    AdaGrad: ("sum",),
    RMSProp: ("square_avg",),
    Adam: ("exp_avg", "exp_avg_sq"),
}
State = dict[str, Any]  # of a piece: key -> a tensor of its length, or a number


def save(
    folder: str,
    comm: Comm,
    model: nn.Module,
    layers: list[FlatLayer],
    rule: Any,
    moved: Sequence[torch.Tensor],
) -> None:
    """Write parameters, state of `rule`, which moves the pieces `moved`, and buffers to `folder`.
    All ranks call it together."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    names, states = names_of(model), iter(states_of(rule, moved))
    of_layers = [[(piece, next(states)) for piece in layer.pieces] for layer in layers]
    mine = {
        (names[piece.parameter][0], key, _is_number(value))
        for pieces in of_layers
        for piece, state in pieces
        for key, value in state.items()
    }
    found: list[Any] = [None] * comm.size
    comm.all_gather_object(found, mine)  # a rank knows the keys of its own pieces
    there, entries = set().union(*found), {}
    for number, (layer, pieces) in enumerate(zip(layers, of_layers, strict=True)):
        vectors = {("", False): layer.shard}
        own = {names[p][0] for p in layer.parameters}
        for key, is_number in sorted({each[1:] for each in there if each[0] in own}):
            vectors[key, is_number] = row = torch.zeros_like(layer.shard)
            for piece, state in pieces:
                row[piece.at] = state.get(key, 0)
        for (key, is_number), row in vectors.items():
            wholes = layer.whole(comm, row)
            for p, whole in zip(layer.parameters, wholes, strict=True):
                if number % comm.size == comm.rank and (
                    not key or (names[p][0], key, is_number) in there
                ):
                    value = whole.flatten()[0] if is_number else whole
                    entries |= {entry(name, key): value.clone() for name in names[p]}
    sharded = {p for layer in layers for p in layer.parameters}
    for tensor in names if comm.rank == 0 else ():
        if tensor not in sharded:  # a buffer, or not trained
            entries |= {entry(name): tensor.detach() for name in names[tensor]}
    with warnings.catch_warnings():  # that it replaces an earlier one
        warnings.simplefilter("ignore")
        save(entries, storage_writer=FileSystemWriter(folder))


def load(
    folder: str,
    model: nn.Module,
    layers: list[FlatLayer],
    rule: Any,
    moved: Sequence[torch.Tensor],
) -> None:
    """Read this rank's shards of what `save` has written on any number of ranks, or torch.

    Raises ValueError for a folder without a checkpoint, one of another model, and state of another
    rule."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load

    def read(wanted: Sequence[str]) -> dict[str, torch.Tensor]:
        values = {key: torch.empty(there[key].size, dtype=there[key].properties.dtype)
                  for key in wanted}  # fmt: skip
        with warnings.catch_warnings():  # that it reads without the other ranks
            warnings.simplefilter("ignore")
            load(values, storage_reader=FileSystemReader(folder), no_dist=True)
        return values

    try:
        there: Any = FileSystemReader(folder).read_metadata().state_dict_metadata
    except OSError:
        raise ValueError(
            f"load={folder!r} holds no checkpoint: name one that save= wrote."
        ) from None
    names = names_of(model)
    check_same_names(folder, there, names)
    states: list[State] = []
    for layer in layers:
        keys = {p: [key for key in there if key.startswith(entry(names[p][0], "_")[:-1])]
                for p in layer.parameters}  # fmt: skip
        values = read([k for p in keys for k in (entry(names[p][0]), *keys[p])])
        for piece in layer.pieces:
            p = piece.parameter
            layer.shard[piece.at] = values[entry(names[p][0])].flatten()[piece.start : piece.stop]
            cut: State = {}
            for name in keys[p]:
                key, value = name.rpartition(".")[2], values[name]
                is_number = not value.dim() and (p.dim() or key == "step")
                cut[key] = value if is_number else value.flatten()[piece.start : piece.stop].clone()
            states.append(cut)
    set_states(rule, moved, states)
    sharded = {p for layer in layers for p in layer.parameters}
    others = {entry(name): t for t, (name, *_) in names.items() if t not in sharded}
    for key, value in read([*others]).items():
        others[key].detach().copy_(value)


def entry(name: str, key: str = "") -> str:
    """A parameter's name in the files, or that of one tensor of its state."""
    return f"optimizer.state.{name}.{key}" if key else f"model.{name}"


def names_of(model: nn.Module) -> dict[torch.Tensor, list[str]]:
    """The names of each parameter and buffer in the model's state."""
    found: dict[torch.Tensor, list[str]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(tensor, []).append(name)
    return found


def check_same_names(folder: str, there: Any, names: dict[torch.Tensor, list[str]]) -> None:
    """Raise ValueError unless the files have the model's names and shapes."""
    own = {entry(name): tensor.shape for tensor, all_of in names.items() for name in all_of}
    has = {key: each.size for key, each in there.items() if key.startswith("model.")}
    for key in {**own, **has}:
        if own.get(key) != has.get(key):
            mine, its = (
                f"of shape {tuple(each[key])}" if key in each else "absent" for each in (own, has)
            )
            raise ValueError(
                f"load={folder!r} holds another model: {key.removeprefix('model.')} is {its} there "
                f"and {mine} here. Give the model that was saved; the number of ranks may differ."
            )


def states_of(rule: Any, moved: Sequence[torch.Tensor]) -> list[State]:
    """What `rule` stores of each piece that it moves; empty before its first update."""
    if isinstance(rule, TorchRule):
        return [rule.optimizer.state.get(piece, {}) for piece in moved]
    memory = getattr(rule, "memory", [])
    if not memory:
        return [{} for _ in moved]
    return [{"step": t, **dict(zip(keys_of(rule), state, strict=False))} if t else {}
            for t, *state in memory]  # fmt: skip


def set_states(rule: Any, moved: Sequence[torch.Tensor], states: list[State]) -> None:
    """Let `rule` go on from these states. Raises ValueError for those of another rule."""
    if isinstance(rule, TorchRule):
        rule.optimizer.state.update(
            {piece: state for piece, state in zip(moved, states, strict=True) if state}
        )
    elif isinstance(rule, Rule) and any(states):
        keys = keys_of(rule)
        if strange := next((s for s in states if s and not s.keys() >= {*keys}), None):
            raise ValueError(
                f"the checkpoint holds {', '.join(strange)} where {type(rule).__name__} needs "
                f"{', '.join(keys)}: train on by the rule that was saved."
            )
        rule.memory = [
            [int(s.get("step", 1)), *(s[key].to(piece.dtype) for key in keys)] if s
            else [0, *(torch.zeros_like(piece) for _ in keys)]
            for piece, s in zip(moved, states, strict=True)
        ]  # fmt: skip


def keys_of(rule: Rule) -> tuple[str, ...]:
    known = next((keys for kind, keys in KEYS.items() if isinstance(rule, kind)), ())
    return known if len(known) == rule.state_tensors else tuple(
        f"state_{i}" for i in range(rule.state_tensors)
    )  # fmt: skip


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or not value.dim()
