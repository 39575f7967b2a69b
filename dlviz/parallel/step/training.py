"""One rank's training: what all strategies share besides their messages.

    each step    | forward, backward, messages | clip, rate, rule | callback | evaluate |

`Options` are the arguments that all have, `models.result.Result` is what all return.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models.result import Result
from dlviz.parallel.step.batches import Batch, Batches, read, read_ahead, shard
from dlviz.parallel.step.prices import update_seconds
from dlviz.parallel.step.replicas import differing, take
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, learn, trained
from dlviz.parallel.update_rules import Moves, Rates, TorchRule, as_rule, squares


class Options(TypedDict, total=False):
    """Keyword arguments of every strategy's `train`.

    clip            the largest joint norm of all gradients of an update: larger ones are scaled
                    down, as by torch.nn.utils.clip_grad_norm_
    lr_schedule     the rate of each update: a function of its number, from 0, or one that makes a
                    torch scheduler of an optimizer: `lambda o: torch.optim.lr_scheduler.StepLR(o,
                    10)`
    evaluate        called with the model as trained so far, a copy in evaluation mode, on the first
                    rank that computes, after every `evaluate_every` steps (1 by default); what it
                    returns is in `evaluations`, by the number of steps
    callback        called on every rank after each of its steps, with the step's number, the loss
                    of the rank's part of the batch (nan without one), and its model or part
    sharded         True: `batches` are this rank's shards, of which none is cut or compared; for
                    strategies whose ranks share the rows of a batch
    """

    clip: float | None
    lr_schedule: Rates | None
    evaluate: Callable[[nn.Module], Any] | None
    evaluate_every: int
    callback: Callable[[int, float, nn.Module], Any] | None
    sharded: bool


def joint_norm(comm: Comm, gradients: Sequence[torch.Tensor | None]) -> float:
    """The norm of the gradients of all ranks of `comm`, each of which has its own.

    Cost: an all-reduce of 8 bytes, by the backend."""
    total = torch.tensor([squares(gradients)], dtype=torch.float64)
    comm.all_reduce(total)
    return total.item() ** 0.5


class Training:
    """Moves this rank's `parameters`, reports each step, and makes the result.

    `whole` gives, on rank `evaluator`, the model to evaluate; every rank calls it.
    """

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        rule: Any,
        lr: float | None,
        options: Options,
        parameters: Sequence[torch.Tensor] | None = None,
        *,
        evaluator: int = 0,
        whole: Callable[[], nn.Module | None] | None = None,
    ):
        if unknown := [name for name in options if name not in Options.__annotations__]:
            raise TypeError(
                f"train() got an unexpected keyword argument {unknown[0]!r}: all strategies have "
                f"{', '.join(Options.__annotations__)}, and each what its docstring says."
            )
        self.comm, self.model, self.options = comm, model, options
        self.moves = Moves(as_rule(rule, lr), options.get("clip"), options.get("lr_schedule"))
        self.parameters = trained(model) if parameters is None else parameters
        self.moves.bind(self.parameters)
        if lr is not None and self.moves.sets_rates:
            raise ValueError(
                f"lr={lr!r} has no effect beside lr_schedule=, which gives each update's rate: "
                "leave one of them out."
            )
        self.evaluations: dict[int, Any] = {}
        self._evaluator, self._whole = evaluator, whole or self._copy
        self._every = self._next = options.get("evaluate_every", 1)
        if isinstance(self._every, bool) or not (isinstance(self._every, int) and self._every > 0):
            raise ValueError(
                f"evaluate_every={self._every!r} is no number of steps: use 1 or more."
            )
        for name in ("evaluate", "callback"):
            if options.get(name) is not None and not callable(options.get(name)):
                raise ValueError(f"{name}={options.get(name)!r} is no function.")
        if not isinstance(options.get("sharded", False), bool):
            raise ValueError(f"sharded={options.get('sharded')!r}: use True or False.")

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
        loss: Loss,
        weight: Weight,
        finish: Callable[[float], Any],
        end: Callable[[], Any] = lambda: None,
        net: nn.Module | None = None,
        alike: bool = True,
    ) -> Result:
        """Forward and backward of `net`, by default the model, on this rank's shard of each batch,
        then `finish(share)`, the weight of the shard; the ranks share the rows as evenly as
        possible. `end()` follows the last; then the ranks' models are `alike`."""
        comm, losses = self.comm, Losses(self.comm)
        sharded = self.options.get("sharded", False)
        pairs = read(comm, batches, sharded=sharded)
        for step, batch in enumerate(comm.progress(pairs, "training")):
            with comm.span("phase", f"step {step}", step=step):
                part = batch if sharded else shard(batch, comm.rank, comm.size)
                share, mean = learn(comm, net or self.model, part, loss, weight)
                finish(share)  # where strategies differ: what is sent, when weights move
                losses.add(step, share, mean)
                self.end_step(step, share, mean)
        end()
        if alike:  # each rank's batch norms have seen its own shards
            take(self.model, differing(comm, [*self.model.buffers()]))
        return self.result(losses.means())

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
            return {}  # lost, and with it what it has found
        return left.broadcast_object(self.evaluations, left.members.index(rank))
