"""Which parameters of a model are trained, also where that changes during training.

A model's parameters may be frozen, unfrozen, added or replaced between two steps. A rank sees this
at each forward of its own model, and reports it in the all-reduces that follow anyway:

    rank 0   forward |backward| changed: 1 |        | the same list? | the new gradients |
    rank 1   forward |backward| changed: 1 | sum: 2 | the same list? | the new gradients |

Without a change only that number is sent; after a change on any rank, all compare their lists, and
the gradients that the buckets have no place for follow.
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
    """The `parameters` of `model` that are trained, as the ranks have agreed. All that were ever
    trained are `hooked`: backward calls `before` with the gradient before `.grad` is written, and
    `after` with the parameter afterwards."""

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
        """The parameters that are trained now; `changed` if they differ from those agreed on."""
        now = trained(self._model)
        self.changed = [*map(id, now)] != [*map(id, self.parameters)]
        for p in now:
            if p not in self.hooked:
                self.hooked.add(p)
                p.register_hook(self._before)
                p.register_post_accumulate_grad_hook(self._after)
        return now

    def agree(self, comm: Comm) -> list[nn.Parameter]:
        """Agree with all ranks on the parameters that are trained now; returns the new ones. Raises
        ValueError on every rank unless all train the same, with the same values of the new ones."""
        check_same_trained(comm, self._model, self.parameters)
        known, now = {*self.parameters}, self.look()
        self.parameters = now or self.parameters  # without any, no bucket could report a change
        return [p for p in now if p not in known]
