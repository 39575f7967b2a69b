"""The network of the assignment mesh_3d: two blocks between an embedding and its transpose.

    x = E[tokens]                               E (V, h)
    x = x + GELU(x up1ᵀ) down1ᵀ                 up (i, h), down (h, i), of each of the two blocks
    x = x + GELU(x up2ᵀ) down2ᵀ
    loss = cross entropy of x Eᵀ                 the same E: its gradient has two shares

A rank has a `StagePart`: an equal part of the inner width of each block of its stage. E is whole
on every rank, since the first stage looks tokens up in it and the last one multiplies by it.
Everything is in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear

State = dict[str, torch.Tensor]
BLOCKS = 2


@dataclass(frozen=True)
class Widths:
    """Rows of a replica, tokens of a row, hidden and inner width, vocabulary."""

    rows: int = 5
    tokens: int = 3
    hidden: int = 4
    inner: int = 8
    vocabulary: int = 9

    @property
    def activations(self) -> int:
        """Numbers that a stage sends to the next one."""
        return self.rows * self.tokens * self.hidden

    def whole(self, generator: torch.Generator) -> State:
        """Weights of the whole network."""
        shapes = {"embedding": (self.vocabulary, self.hidden)}
        for i in range(BLOCKS):
            shapes[f"{i}.up"] = (self.inner, self.hidden)
            shapes[f"{i}.down"] = (self.hidden, self.inner)
        return {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in shapes.items()
        }

    def batch(self, generator: torch.Generator, replicas: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of all replicas, (replicas, rows, tokens) each."""
        shape = (2, replicas, self.rows, self.tokens)
        tokens, targets = torch.randint(self.vocabulary, shape, generator=generator)
        return tokens, targets


class CutBlock(nn.Module):
    """A rank's columns of a block's inner width."""

    def __init__(self, up: torch.Tensor, down: torch.Tensor):
        super().__init__()
        self.up, self.down = nn.Parameter(up), nn.Parameter(down)  # (i/t, h), (h, i/t)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (B, s, h), whole, to this rank's share of the sum, (B, s, h)."""
        return linear(gelu(linear(x, self.up)), self.down)


class StagePart(nn.Module):
    """A rank's part of the network, and its local computations."""

    def __init__(self, widths: Widths, own: State):
        super().__init__()
        self._widths = widths
        self.embedding = nn.Parameter(own["embedding"])
        names = [name.removesuffix(".up") for name in own if name.endswith(".up")]
        self.blocks = nn.ModuleList(CutBlock(own[f"{i}.up"], own[f"{i}.down"]) for i in names)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (B, s) to x (B, s, h)."""
        return self.embedding[tokens]

    def loss(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The cross entropies of all tokens, added up: x (B, s, h), targets (B, s)."""
        return total_loss(x, self.embedding, targets)

    def empty(self) -> torch.Tensor:
        """A tensor to receive activations or their gradient into, (B, s, h)."""
        w = self._widths
        return torch.empty(w.rows, w.tokens, w.hidden, dtype=torch.float64)


def part_of(state: State, stages: int, stage: int, ranks: int, rank: int) -> State:
    """The part of the whole weights of a tp rank of a stage."""
    names = [f"{i}.{kind}" for i in blocks_of(stages, stage) for kind in CUT]
    return {name: cut(name, state, ranks, rank).clone() for name in ("embedding", *names)}


CUT = {"up": 0, "down": 1}  # the dim of the inner width


def blocks_of(stages: int, stage: int) -> range:
    """The numbers of a stage's blocks."""
    each = BLOCKS // stages
    return range(stage * each, (stage + 1) * each)


def cut(name: str, state: State, ranks: int, rank: int) -> torch.Tensor:
    """A tp rank's part of a weight."""
    _, _, kind = name.partition(".")
    return state[name].chunk(ranks, CUT[kind])[rank] if kind in CUT else state[name]


def total_loss(x: torch.Tensor, embedding: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = linear(x, embedding)  # (B, s, V)
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def gradients(
    state: State, tokens: torch.Tensor, targets: torch.Tensor
) -> tuple[float, State, State]:
    """The mean loss of a batch in one process, its gradients, and those of the embedding as the
    first stage ("first") and as the last one ("last") have them."""
    leaves = {name: each.clone().requires_grad_() for name, each in state.items()}
    first, last = (state["embedding"].clone().requires_grad_() for _ in range(2))
    x = first[tokens]
    for i in range(BLOCKS):
        x = x + linear(gelu(linear(x, leaves[f"{i}.up"])), leaves[f"{i}.down"])
    loss = total_loss(x, last, targets) / targets.numel()
    loss.backward()
    found = {name: each.grad for name, each in leaves.items() if each.grad is not None}
    assert first.grad is not None and last.grad is not None
    found["embedding"] = first.grad + last.grad
    return loss.item(), found, {"first": first.grad, "last": last.grad}
