"""The weight of each microbatch's loss in the mean of the batch.

    L = sum_k w_k L_k / sum_k w_k

where w_k is the number of rows of microbatch k, or given by weight=: target tokens, say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.models.mean_of import Loss, MeanOverRows, Weight, of_batch, weighed
from dlviz.parallel.step.sharded_step import counting, no_mean, rows


class Microbatches:
    """The weights of the microbatches, and the losses of their outputs. Raises ValueError for
    invalid weights, and where all are 0."""

    def __init__(
        self,
        inputs: Sequence[torch.Tensor],
        targets: Sequence[torch.Tensor],
        loss: Loss,
        weight: Weight = rows,
    ):
        self.targets = targets
        weight = counting(loss, weight)
        weigh = of_batch(weight)
        self.weights = [
            weighed(f"microbatch {number}", weigh(*batch))
            for number, batch in enumerate(zip(inputs, targets, strict=True))
        ]
        self.total = sum(self.weights)
        if not self.total:
            no_mean()
        self._checks = MeanOverRows(loss) if weight is rows and len(targets) > 1 else None
        self._loss = self._checks or loss
        self._losses: list[tuple[float, torch.Tensor]] = []

    def loss(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """The loss of a microbatch's output; 0 where it weighs nothing."""
        if not self.weights[number]:
            return output.sum() * 0  # has a backward all the same: other stages wait for it
        value = self._loss(output, self.targets[number])
        if value.numel() != 1:
            raise ValueError(
                f"the loss has shape {tuple(value.shape)}: make it one number, the mean over its "
                "microbatch."
            )
        self._losses.append((self.weights[number], value.detach()))  # no graph: backward frees it
        return value

    def share(self, number: int) -> float:
        """The factor of a microbatch's gradient."""
        return self.weights[number] / self.total  # dL/dL_k = w_k / Σ w; 1/m if all are equal

    def mean(self) -> float:
        """The loss of the batch, after all its outputs. Raises ValueError where no weight was given
        and the losses are not means over rows."""
        if self._checks is not None:
            self._checks.check()
        return sum(weight * float(value) for weight, value in self._losses) / self.total
