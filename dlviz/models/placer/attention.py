"""ColocRL: an LSTM reads the groups, a second one writes a device for each, looking back at all.

    group 0   group 1   group 2           what a group is: type, seconds, bytes, neighbours
       |         |         |
    [LSTM] -> [LSTM] -> [LSTM] --+        encoder: a state for each group
       .         .         .     |
    attention: which groups matter        weights over all states
                 .               v
    start ---> [LSTM] -> [LSTM] -> [LSTM] decoder: the last device goes in, the next comes out
                 |         |         |
             device 0  device 2  device 1

So a group's device may depend on those of the groups before it, which a table cannot say. Source:
A. Mirhoseini et al., "Device placement optimization with reinforcement learning", 2017, section
3.2; attention is D. Bahdanau's, 2015.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import nn

from dlviz.models.placer.table import Draws, log_probability
from dlviz.models.seeding import seed_layers
from dlviz.sim.placement import Devices, Graph
from dlviz.sim.placement.graph import takes

HIDDEN = 32


class ColocRL(nn.Module):
    """The policy for `graph` on `devices`. `types` has the kind of each group's operator (None: all
    alike). Raises ValueError for more or fewer types than groups."""

    features: torch.Tensor

    def __init__(
        self, graph: Graph, devices: Devices, seed: int = 0, types: Sequence[Hashable] | None = None
    ):
        super().__init__()
        self.order = graph.in_order()
        self.register_buffer("features", features(graph, devices, types)[self.order])
        self.embed = nn.Linear(self.features.size(1), HIDDEN)
        self.encoder = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.last = nn.Embedding(devices.count + 1, HIDDEN)  # of devices, and of the start
        self.decoder = nn.LSTMCell(HIDDEN, HIDDEN)
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.score = nn.Linear(HIDDEN, 1, bias=False)
        self.out = nn.Linear(2 * HIDDEN, devices.count)
        seed_layers(self, seed)

    def forward(self, k: int, generator: torch.Generator) -> Draws:
        states, (h, c) = self.encoder(self.embed(self.features)[None])  # (1, groups, HIDDEN)
        keys = self.key(states)
        h, c = h[0].expand(k, -1), c[0].expand(k, -1)  # (k, HIDDEN)
        device = torch.full((k,), self.last.num_embeddings - 1)
        devices, logs = [], []
        for _ in self.order:
            h, c = self.decoder(self.last(device), (h, c))
            scores = self.score(torch.tanh(keys + self.query(h)[:, None]))  # (k, groups, 1)
            context = (scores.softmax(1) * states).sum(1)  # (k, HIDDEN)
            logs.append(self.out(torch.cat([h, context], -1)).log_softmax(-1))  # (k, devices)
            device = torch.multinomial(logs[-1].detach().exp(), 1, generator=generator)[:, 0]
            devices.append(device)
        back = torch.tensor(self.order).argsort()  # from the order of reading to that of the graph
        placements, log = torch.stack(devices, 1)[:, back], torch.stack(logs, 1)[:, back]
        return Draws(placements, log_probability(log, placements), log.detach().exp())


def features(graph: Graph, devices: Devices, types: Sequence[Hashable] | None) -> torch.Tensor:
    """What the encoder reads of each group: one-hot its type, its seconds on each device, bytes of
    its value and those it holds, each column of numbers over its largest; and its neighbours."""
    types = [None] * len(graph) if types is None else types
    if len(types) != len(graph):
        raise ValueError(
            f"types has {len(types)} entries and the graph {len(graph)} groups: give one for each."
        )
    kinds = [*dict.fromkeys(types)]
    one_hot = torch.eye(len(kinds))[[kinds.index(own) for own in types]]
    numbers = torch.tensor([
        [*row, own, held] for row, own, held
        in zip(takes(graph, devices), graph.nbytes, graph.weights or (), strict=True)
    ], dtype=torch.float32)  # fmt: skip
    numbers /= numbers.amax(0).clamp(min=1)
    needs = torch.zeros(len(graph), len(graph))
    for group, parents in enumerate(graph.parents):
        needs[group, list(parents)] = 1
    return torch.cat([one_hot, numbers, needs, needs.T], 1)
