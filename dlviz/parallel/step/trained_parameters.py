"""Which parameters of a model are trained, where that changes while it is.

A model's parameters may be frozen, unfrozen, added or replaced between two steps. A rank sees that
of its own model at each forward, and tells the others in the all-reduces that come anyway:

    rank 0   forward |backward| changed: 1 |        | the same list? | the new gradients |
    rank 1   forward |backward| changed: 1 | sum: 2 | the same list? | the new gradients |

Without a change nothing more is sent than that number; with one, on whichever rank, all compare
their lists, and the gradients that the buckets have no place for follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.step.replicas import check_same_trained
from dlviz.parallel.step.sharded_step import trained


class TrainedParameters:
    """The `parameters` of `model` that are trained, as the ranks have agreed. Each that is ever
    trained is one of the `hooked`: backward calls `before` with its gradient before `.grad` is
    written, and `after` with the parameter when it is."""

    def __init__(
        self,
        model: nn.Module,
        before: Callable[[torch.Tensor], None],
        after: Callable[[Any], None],
    ):
        self._model, self._before, self._after = model, before, after
        self.hooked: set[nn.Parameter] = set()
        self.parameters: list[nn.Parameter] = []
        self.parameters = self.look()
        if not self.parameters:
            raise ValueError("the model has no parameter to train: set requires_grad of one.")

    def look(self) -> list[nn.Parameter]:
        """What is trained now; whether it is what the ranks have agreed on is `changed`."""
        now = trained(self._model)
        self.changed = [*map(id, now)] != [*map(id, self.parameters)]
        for p in now:
            if p not in self.hooked:
                self.hooked.add(p)
                p.register_hook(self._before)
                p.register_post_accumulate_grad_hook(self._after)
        return now

    def agree(self, comm: Comm) -> list[nn.Parameter]:
        """Take what is trained now, on all ranks; returns what is new. Raises ValueError that names
        it on every rank, unless all train the same, with the same values of what is new."""
        check_same_trained(comm, self._model, self.parameters)
        known, now = {*self.parameters}, self.look()
        self.parameters = now or self.parameters  # a rank that trains nothing tells nobody of it
        return [p for p in now if p not in known]
