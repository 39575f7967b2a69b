"""One rank's training: what all strategies share besides their messages.

    each step    | forward, backward, messages | clip, rate, rule | callback | evaluate |

`Options` are the arguments that all have, `models.result.Result` is what all return.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm, Saved
from dlviz.models.mean_of import Loss, Weight, check_loss
from dlviz.models.options import TrainingOptions, check_options, squares
from dlviz.models.result import Result
from dlviz.parallel.step.batches import Batch, Batches, read, read_ahead, shard
from dlviz.parallel.step.prices import update_seconds
from dlviz.parallel.step.replicas import differing, take
from dlviz.parallel.step.sharded_step import Losses, learn, trained
from dlviz.parallel.update_rules import Moves, TorchRule, as_rule


class Options(TrainingOptions, total=False):
    """Keyword arguments of every strategy's `train`: those of any training (models/options.py).

    sharded         True: `batches` are this rank's shards, of which none is cut or compared; for
                    strategies whose ranks share the rows of a batch
    """

    sharded: bool


def joint_norm(comm: Comm, gradients: Sequence[torch.Tensor | None]) -> float:
    """The norm of the gradients of all ranks of `comm`, each of which has its own.

    Cost: an all-reduce of 8 bytes, by the backend."""
    total = torch.tensor([squares(gradients)], dtype=torch.float64)
    comm.all_reduce(total)
    return total.item() ** 0.5


class Training:
    """Moves this rank's `parameters`, reports each step, and makes the result. Raises ValueError,
    on each rank that is given it, for what is no loss, weight, rule, rate or option.

    `whole` gives, on rank `evaluator`, the model to evaluate; every rank calls it.
    """

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        rule: Any,
        lr: float | None,
        options: Options,
        loss: Loss,
        weight: Weight,
        parameters: Sequence[torch.Tensor] | None = None,
        *,
        evaluator: int = 0,
        whole: Callable[[], nn.Module | None] | None = None,
    ):
        check_options(options, Options)
        check_loss(loss, weight)
        self.comm, self.model, self.options = comm, model, options
        self.loss, self.weight = loss, weight
        self.moves = Moves(as_rule(rule, lr), options.get("clip"), options.get("lr_schedule"))
        self.parameters = trained(model) if parameters is None else parameters
        self.moves.bind(self.parameters)
        if self.moves.rates is not None:
            self.moves.rates.refuse_beside(lr)
        self.evaluations: dict[int, Any] = {}
        self._saved = Saved(comm)  # they outlive the rank that evaluates
        self._evaluator, self._whole = evaluator, whole or self._copy
        self._every = self._next = options.get("evaluate_every", 1)

    def record_weights(self) -> None:
        """Record the memory of this rank's weights, and of its rule's state."""
        weights = sum(p.nbytes for p in self.model.parameters())
        self.comm.memory("weights", weights)
        self.comm.memory("update rule", self.moves.state_tensors * weights)

    def update(
        self,
        gradients: Sequence[torch.Tensor | None] | None = None,
        parameters: Sequence[torch.Tensor] | None = None,
        **fields: Any,
    ) -> None:
        """Move the parameters against their `gradients`, by default their `.grad`; `fields` are
        those of the span."""
        own = self.parameters if parameters is None else parameters
        gradients = self.moves.clipped([p.grad for p in own] if gradients is None else gradients)
        if not own:
            return  # this rank moves none
        with self.comm.compute("update", seconds=update_seconds(self.comm, own), **fields):
            self.moves.step(own, gradients)
        if isinstance(self.moves.rule, TorchRule):
            self.comm.memory("update rule", self.moves.rule.nbytes)

    def read(self, batches: Batches, whose: str = "") -> Iterable[Batch]:
        """The batches of a strategy whose ranks all work on a whole batch (batches.py)."""
        self._check_whole()
        return read(self.comm, batches, whose)

    def read_ahead(self, batches: Batches) -> list[Batch]:
        """All batches, of a strategy whose ranks take them in turn."""
        self._check_whole()
        return read_ahead(self.comm, batches)

    def _check_whole(self) -> None:
        if self.options.get("sharded"):
            raise ValueError(
                "sharded=True is for strategies whose ranks share the rows of a batch, as ddp: "
                "here a rank takes whole batches, so give all ranks the same."
            )

    def run(
        self,
        batches: Batches,
        finish: Callable[[float], Any],
        end: Callable[[], Any] = lambda: None,
        net: nn.Module | None = None,
        weight: Weight | None = None,
        alike: bool = True,
        learn: Callable[..., tuple[float, float]] = learn,
        state: Callable[[], dict[str, torch.Tensor] | None] = lambda: None,
        whose: str = "",
    ) -> Result:
        """Forward and backward of `net`, by default the model, on this rank's shard of each batch,
        by `learn`; then `finish(share)`, the weight of the shard; the ranks share the rows as
        evenly as possible. `end()` follows the last; then the ranks' models are `alike`. `state()`
        is the trained one, by default the model's. With `whose` inputs are one tensor, as in
        `batches.read`."""
        comm, losses, net = self.comm, Losses(self.comm), net or self.model
        sharded = self.options.get("sharded", False)
        pairs = read(comm, batches, whose, sharded)
        for step, batch in enumerate(comm.progress(pairs, "training")):
            with comm.span("phase", f"step {step}", step=step):
                part = batch if sharded else shard(batch, comm.rank, comm.size)
                share, mean = learn(comm, net, part, self.loss, weight or self.weight)
                finish(share)  # where strategies differ: what is sent, when weights move
                losses.add(step, share, mean)
                self.end_step(step, share, mean)
        end()
        if alike:  # each rank's batch norms have seen its own shards
            take(self.model, differing(comm, [*self.model.buffers()]))
        return self.result(losses.means(), state())

    def end_step(self, step: int, share: float, mean: float) -> None:
        """After a step of this rank, whose part of the batch has the weight `share` and the loss
        `mean`: callback and evaluation."""
        callback, evaluate = self.options.get("callback"), self.options.get("evaluate")
        steps = step + 1
        if callback is not None:
            callback(step, mean if share else math.nan, self.model)
        if evaluate is None or steps < self._next:
            return
        self._next = (steps // self._every + 1) * self._every
        with self.comm.span("phase", "evaluation"):
            model = self._whole()
            if model is not None:
                with torch.no_grad():
                    self.evaluations[steps] = evaluate(model.eval())
                self._saved.add((steps, self.evaluations[steps]))

    def _copy(self) -> nn.Module | None:
        return copy.deepcopy(self.model) if self.comm.rank == self._evaluator else None

    def result(
        self, losses: list[float], state: dict[str, torch.Tensor] | None = None, **more: Any
    ) -> Result:
        """The result, on every rank that is left."""
        if state is None:
            state = {name: value.cpu() for name, value in self.model.state_dict().items()}
        evaluations = self.evaluations
        if self.options.get("evaluate") is not None:
            evaluations = self.comm.together(self._evaluated)
        return Result(losses, state, evaluations, **more)

    def _evaluated(self, left: Comm) -> dict[int, Any]:
        rank = self.comm.members[self._evaluator]
        if rank not in left.members:
            return dict(self._saved.of(self._evaluator))  # up to its loss
        return left.broadcast_object(self.evaluations, left.members.index(rank))
