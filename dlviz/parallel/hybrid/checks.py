"""Whether mesh, model and schedule of a hybrid run fit together: errors of one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models import Transformer
from dlviz.parallel.step.replicas import check_replicas, check_same, check_same_model
from dlviz.parallel.tensor.parameters import axis_parameters
from dlviz.schedules import Schedule, make

AXES = ("dp", "pp", "tp")


def mesh_of(comm: Comm, lengths: dict[str, int], order: Sequence[str]) -> Any:
    """The mesh with these axes, the last in `order` fastest. Raises ValueError for an invalid
    length or order, and for lengths whose product is not the number of ranks."""
    for name, length in lengths.items():
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(
                f"{name}={length!r} is no length of an axis: use 1 where the model is not cut "
                "along it, else a whole number of ranks."
            )
    if sorted(order) != sorted(AXES):
        raise ValueError(
            f"order={tuple(order)!r} has to name each of dp, pp and tp once, and the axis whose "
            "ranks are neighbours last."
        )
    return comm.mesh(**{name: lengths[name] for name in order})


def schedule_of(name: str, ranks: int, microbatches: int, chunks: int | None) -> Schedule:
    """The schedule of a replica. Raises ValueError for one that does not train or not flush."""
    schedule = make(name, ranks, microbatches, chunks)
    if not schedule.flushes or name == "inference":
        raise ValueError(
            f"schedule={name!r} leaves no gradients of a whole batch for the replicas to average: "
            "use gpipe, 1f1b, interleaved or zb_h1, say."
        )
    return schedule


def check_same_transformer(comm: Comm, model: Transformer) -> None:
    """Raise ValueError on every rank, naming two, unless all were given the same model.

    Cost: two all-gathers of 32 bytes, by the backend."""
    check_same_model(comm, model)
    sizes = f"heads={model.heads}, dropout={model.drop.rate}, seed={model.drop.seed}"
    given = {name: p for name, p in model.named_parameters() if not p.is_meta}
    advice = "seed the models alike, or load the same weights"
    check_replicas(comm, "models", given, advice, f"a Transformer with {sizes}")


def check_stages(
    comm: Comm,
    mesh: Any,
    stages: Sequence[nn.Module | None],
    schedule: Schedule,
    sequence_parallel: bool,
) -> None:
    """Raise ValueError unless `stages` has one for each of the schedule's, each rank has its own,
    and all ranks that hold a stage hold the same values."""
    if isinstance(stages, nn.Module):
        raise ValueError(
            f"a {type(stages).__name__} has no stages: give a models.Transformer, or a list of "
            "modules, as pipeline.split(model, stages) makes it."
        )
    if sequence_parallel:
        raise ValueError(
            "sequence_parallel=True is for a models.Transformer: stages of your own are not cut."
        )
    check_same(
        comm, [f"{len(stages)} stages"], "models", "give every rank a list of all of its stages"
    )
    if len(stages) != len(schedule.stage_rank):
        raise ValueError(
            f"the model has {len(stages)} stages and {schedule!r} {len(schedule.stage_rank)}: give "
            "one module for each."
        )
    own: dict[str, nn.Module] = {}
    missing = []
    for number, (stage, rank) in enumerate(zip(stages, schedule.stage_rank, strict=True)):
        if rank != mesh.pp.rank:
            continue
        if stage is None or any(p.is_meta for p in stage.parameters()):
            missing.append(number)
        else:
            own[str(number)] = stage
    said = ""
    if missing:
        said = (
            f"rank {comm.rank} holds no values of its stage {missing[0]}: give each rank its own "
            "stages; those of other ranks may be None."
        )
    raise_everywhere(comm, said)
    net = nn.ModuleDict(own)
    cut = {p for *_, p, dim, _ in axis_parameters(mesh.tp, net) if dim is not None}
    whole = {name: p for name, p in net.named_parameters() if p not in cut}
    advice = "build the same stages, seeded alike, on all replicas"
    for axis, alike in ((mesh.dp, dict(net.named_parameters())), (mesh.tp, whole)):
        said = ""
        try:
            check_same_model(axis, net)
            check_replicas(axis, "stages", alike, advice)
        except ValueError as error:
            said = str(error)
        raise_everywhere(comm, said)


def raise_everywhere(comm: Comm, said: str) -> None:
    """Raise ValueError on every rank if a rank has `said` something, with the first rank's words.

    Cost: one all-gather of 8 bytes, by the backend."""
    mine = torch.tensor([len(said)])
    lengths = mine.new_empty(comm.size, 1)
    comm.all_gather(lengths, mine)
    if lengths.any():
        raise ValueError(comm.broadcast_object(said, int(lengths.flatten().nonzero()[0])))
