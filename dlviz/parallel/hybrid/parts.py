"""The layers that a rank of the mesh holds: those of its pipeline stages, cut over tp.

    tokens + positions | block 0 | block 1 | block 2 | block 3 | norm, logits      a Transformer
    ------- stage 0, pp rank 0 ------------|------- stage 1, pp rank 1 -------      pp=2
    tp rank 0 and 1: half the heads, columns and vocabulary each; norms whole

No rank holds more: of the other stages it only knows the number. The output layer is the embedding
(tied), so the ranks of the first and of the last stage hold the same shard of its weight, and sum
its gradient (pipeline/shared_parameters.py).

Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", SC 2021, section 2. In PyTorch: torch.distributed.pipelining.PipelineStage of a
module on which parallelize_module was called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models import Transformer, seed_layers
from dlviz.models.dropout import Dropout
from dlviz.models.transformer import SmallEmbedding
from dlviz.parallel.pipeline.partition import cut
from dlviz.parallel.step.layers import layers_of
from dlviz.parallel.tensor.embedding import VocabularyParallelEmbedding
from dlviz.parallel.tensor.linear import ShardedLinear
from dlviz.parallel.tensor.parameters import load_layer
from dlviz.parallel.tensor.transformer import ParallelBlock, embedded
from dlviz.schedules import Schedule


class RankPart(NamedTuple):
    """`net` has the layers of this rank by their names in the whole model, `stages` all stages of
    the pipeline, as `train_step` takes them. `copied` are parameters that an earlier rank holds
    too. `place` orders the names of the whole model."""

    net: nn.Module
    stages: list[nn.Module | None]
    copied: frozenset[nn.Parameter]
    place: Callable[[str], int]


class TransformerPart(nn.Module):
    """The layers of some stages of a `Transformer`, cut over the ranks of `comm`."""

    def __init__(
        self,
        comm: Comm,
        model: Transformer,
        blocks: Sequence[int],
        first: bool,
        last: bool,
        how: Any,
    ):
        super().__init__()
        hidden, drop = model.hidden, model.drop
        kv_heads, rate, seed = model.kv_heads, drop.rate, drop.seed
        self.comm, self.sequence = comm, model.sequence
        self.sequence_parallel = how["sequence_parallel"]
        if first or last:
            self.tokens = VocabularyParallelEmbedding(comm, model.vocabulary, hidden, **how)
        if first:
            self.positions = SmallEmbedding(model.sequence, hidden)
            self.drop = Dropout(rate, seed, 0)
        self.blocks = nn.ModuleDict()
        for number in blocks:
            block = ParallelBlock(comm, hidden, model.heads, kv_heads, rate, seed, number, **how)
            self.blocks[str(number)] = block
        if last:
            self.norm = nn.LayerNorm(hidden)
        for name, module in self.named_modules():
            if isinstance(module, ShardedLinear):
                module.name, module.checked = name, True  # train has compared the models

    def draw(self, model: Transformer) -> None:
        """Draw the same weights as the whole `model` with its seed."""
        number = {name: place for place, name in enumerate(layers_of(model))}
        for name, layer in layers_of(self).items():
            seed_layers(layer, model.seed, number[name])

    def load(self, model: Transformer) -> None:
        """Take this part's values from the whole `model`."""
        for name, layer in layers_of(self).items():
            whole = model.get_submodule(name).named_parameters()
            load_layer(self.comm, name, layer, {key: p.detach() for key, p in whole})


class TransformerStage(nn.Module):
    """A run of a part's blocks: tokens (B, s) or x (B, s, h) to x (B, s, h) or logits (B, s, V/t);
    under sequence parallelism x is (B, s/t, h)."""

    def __init__(self, part: TransformerPart, blocks: Sequence[int], first: bool, last: bool):
        super().__init__()
        self.comm, self.sequence = part.comm, part.sequence
        self.sequence_parallel, self.first, self.last = part.sequence_parallel, first, last
        if first or last:
            self.tokens = part.tokens
        if first:
            self.positions, self.drop = part.positions, part.drop
        self.blocks = nn.ModuleList(part.blocks[str(number)] for number in blocks)
        if last:
            self.norm = part.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first:
            x = embedded(self, x)  # (B, s, h)
        for block in self.blocks:
            x = block(x)
        return self.tokens.logits(self.norm(x)) if self.last else x


def blocks_of(model: Transformer, stages: int) -> list[range]:
    """The blocks of each stage, cut so that the costliest stage has the fewest products; the logits
    count in the last. Raises ValueError for fewer blocks than stages."""
    if model.layers < stages:
        raise ValueError(
            f"the Transformer has {model.layers} blocks for {stages} stages, and each stage needs "
            f"one or more: use pp * chunks={model.layers} or less, or a deeper model."
        )
    costs = [12.0 * model.hidden] * model.layers  # products per token, in units of h
    costs[-1] += model.vocabulary
    starts = [*cut(costs, stages), model.layers]
    return [range(*ends) for ends in zip(starts, starts[1:], strict=False)]


def transformer_part(
    mesh: Any, model: Transformer, schedule: Schedule, all_reduce: str, sequence_parallel: bool
) -> RankPart:
    """This rank's part of `model`, with its values or, for one on the meta device, those that its
    seed draws. `model` is left empty."""
    how = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
    runs, on = blocks_of(model, len(schedule.stage_rank)), schedule.stage_rank
    mine = [stage for stage, rank in enumerate(on) if rank == mesh.pp.rank]
    last = len(on) - 1
    blocks = [number for stage in mine for number in runs[stage]]
    net = TransformerPart(mesh.tp, model, blocks, 0 in mine, last in mine, how)
    original = next(model.parameters())
    if original.is_meta:
        net.draw(model)
    net.to(mesh.tp.device, original.dtype)
    if not original.is_meta:
        net.load(model)
    for name, p in net.named_parameters():
        p.requires_grad_(model.get_parameter(name).requires_grad)
    tied = net.tokens.weight if hasattr(net, "tokens") else nn.Parameter(original.new_empty(0))
    stages: list[nn.Module | None] = [
        TransformerStage(net, runs[stage], stage == 0, stage == last)
        if rank == mesh.pp.rank
        else holder(tied)
        if stage in (0, last)
        else None
        for stage, rank in enumerate(on)
    ]
    empty(model.parameters())
    copied = {tied} if last in mine and 0 not in mine else set()
    return RankPart(net, stages, frozenset(copied), list(dict(model.named_parameters())).index)


def holder(shared: nn.Parameter) -> nn.Module:
    """A stage of another rank, of which this one only knows the shared parameter."""
    stage = nn.Module()
    stage.shared = shared
    return stage


def stages_part(mesh: Any, model: Sequence[nn.Module | None], schedule: Schedule) -> RankPart:
    """This rank's part of a list of stages; the stages of other ranks are left empty."""
    net, others = nn.ModuleDict(), nn.ModuleList()
    earlier: set[nn.Parameter] = set()
    for number, (stage, rank) in enumerate(zip(model, schedule.stage_rank, strict=True)):
        if stage is not None and rank == mesh.pp.rank:
            net[str(number)] = stage.to(mesh.tp.device)
        elif stage is not None:
            others.append(stage)
            earlier.update(stage.parameters() if rank < mesh.pp.rank else ())
    own = set(net.parameters())
    empty([p for p in others.parameters() if p not in own])
    return RankPart(
        net, list(model), frozenset(own & earlier), lambda name: int(name.split(".")[0])
    )


def empty(parameters: Iterable[nn.Parameter]) -> None:
    """Free values that another rank holds, or that were cut."""
    for p in parameters:
        if not p.is_meta:
            p.data = p.data.new_empty(0)
