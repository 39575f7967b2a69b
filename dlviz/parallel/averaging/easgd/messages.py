"""The two equations of elastic averaging (train.py), and the messages of master and workers."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from dlviz.parallel.server.push_pull import receive, reply
from dlviz.parallel.step.batches import Batch
from dlviz.parallel.step.prices import update_seconds
from dlviz.parallel.step.replicas import flat_by_dtype, spread
from dlviz.parallel.step.sharded_step import Losses, learn, trained
from dlviz.parallel.step.training import Training


class Elastic:
    """Shared by master and workers: the weights of this rank's model (the master's are W̄), the
    losses, the messages and the updates."""

    def __init__(self, training: Training, batches: list[Batch], alpha: float, **how: Any):
        self.training, self.comm, self.model = training, training.comm, training.model
        self.batches, self.alpha, self.how = batches, alpha, how
        self.weights = trained(self.model)
        self.losses = Losses(self.comm, len(batches))
        self._mean, self._centre = math.nan, []  # of this worker's last batch; as last received

    def send(self) -> None:
        """Worker: send its weights."""
        for _, flat in flat_by_dtype(self.weights):
            self.comm.send(flat, 0)  # matches `take`

    def reply(self, worker: int) -> None:
        """Master: send the centre."""
        # Matches `receive`; a lost worker is skipped.
        reply(self.comm, [flat for _, flat in flat_by_dtype(self.weights)], worker)

    def receive(self) -> list[torch.Tensor]:
        """Worker: the centre."""
        centre = [torch.empty_like(p.detach()) for p in self.weights]
        for alike, flat in flat_by_dtype(centre):
            self.comm.recv(flat, 0)
            spread(flat, alike)
        return centre

    def take(self, workers: Collection[int]) -> tuple[list[torch.Tensor], int]:
        """Master: the weights of the first of `workers` to send, and its rank; no weights where a
        worker is lost."""
        theirs = [torch.empty_like(p.detach()) for p in self.weights]
        groups = flat_by_dtype(theirs)
        worker, came = receive(self.comm, [flat for _, flat in groups], workers)
        for alike, flat in groups:
            spread(flat, alike)
        return theirs if came else [], worker

    def learn(self, step: int, batch: Any, whole: bool = True) -> float:
        """Forward and backward on a whole batch or a shard: ΔW. Returns what it weighs."""
        share, self._mean = learn(self.comm, self.model, batch, **self.how, whole=whole)
        self.losses.add(step, share, self._mean)
        return share

    def local_update(self, step: int, share: float, centre: list[torch.Tensor]) -> None:
        """Equation 1, by any rule: it moves W against ΔW + ρ (W - W̄)."""
        self._centre = centre
        rho = self.alpha / self.training.moves.lr  # α = η ρ
        gradients: list[torch.Tensor | None] = []
        for w, c in zip(self.weights, centre, strict=True):
            pull = rho * (w.detach() - c)  # ρ (W - W̄)
            # Without an example there is no ΔW: only the elastic term moves W.
            gradients.append(pull if w.grad is None or not share else pull + w.grad)
        self.training.update(gradients)
        self.training.end_step(step, share, self._mean)

    def centre(self) -> nn.Module | None:
        """Worker 1: the model with the centre's weights, as it last received them."""
        if self.comm.rank != 1:
            return None
        net = copy.deepcopy(self.model)
        with torch.no_grad():
            for p, c in zip(trained(net), self._centre, strict=True):
                p.copy_(c)
        return net

    def global_update(self, local: list[list[torch.Tensor]], **fields: Any) -> None:
        """Equation 2, over the models in `local`."""
        seconds = update_seconds(self.comm, self.weights)
        with self.comm.compute("update", seconds=seconds, **fields), torch.no_grad():
            for place, c in enumerate(self.weights):
                # α Σ_i (W^i - W̄), all with W̄ from before it moves.
                c += self.alpha * sum(weights[place] - c for weights in local)
