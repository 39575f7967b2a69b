"""Point to point, between neighbouring stages: what an action receives from the stage before or
after its own, and what it passes on.

    stage 1 on rank 1     F --activations-->    stage 2 on rank 2     a message, or where both
                          B <--gradient----                           live on one rank a hand-over

Every message has a tag of its own, and a receive is posted while the rank is still at the actions
before. Shapes need not be given: of the first message that comes to a stage the header is read, and
what it says holds for all that follow (shapes.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dlviz.cluster import Comm
from dlviz.parallel.pipeline.shapes import StageShape
from dlviz.parallel.pipeline.stage_backward import differentiable
from dlviz.schedules import RECEIVES_FROM, Action

AHEAD = 8  # receives under way
Message = tuple[int, int, int, int]


class P2P:
    """The messages of a rank on its way through `row`. `inputs` are the microbatches that go into
    the first stage, `shapes` those of the rank's stages."""

    def __init__(
        self,
        comm: Comm,
        stage_rank: Sequence[int],
        row: Sequence[Action],
        inputs: Sequence[torch.Tensor],
        shapes: Mapping[int, StageShape],
    ):
        self._comm = comm
        self._stage_rank = stage_rank
        self._inputs = inputs
        self._shapes = shapes
        self._handed_over: dict[int, torch.Tensor] = {}
        self._posted: deque[Any] = deque()
        self._sends: list[Any] = []
        self._due = deque(
            one for action in row for one in action.halves if self._neighbour(one) is not None
        )

    def receive(self, action: Action) -> tuple[torch.Tensor | None, Message | None]:
        """The input of a forward or the gradient of a stage's output (None where the loss or a W
        is next); and which message brought it."""
        if action.kind == "F" and action.stage == 0:
            return self._inputs[action.microbatch].clone(), None  # a stage may work in place
        source = action.stage + RECEIVES_FROM[action.kind]
        if action.kind == "W" or source == len(self._stage_rank) or self._has_no_gradient(action):
            return None, None
        if self._stage_rank[source] == self._comm.rank:
            return self._handed_over.pop(self._tag(action)), None
        self._post()
        if not self._posted:  # the first message to this stage: its shape is not known yet
            first = self._comm.probe(self._stage_rank[source], self._tag(action))
            self._shapes[action.stage].input = first.shape, first.dtype
            self._post()
        request = self._posted.popleft()  # in the order of the row, as they were posted
        self._post()  # before the wait, so that AHEAD of them stay under way
        request.wait()
        return request.tensor, request.message

    def pass_on(self, action: Action, left: torch.Tensor | None) -> None:
        """Give the next stage what `action` left, if it left anything."""
        if left is None:
            return
        stage = action.stage - RECEIVES_FROM[action.kind]
        tag = self._tag(action._replace(stage=stage))
        if self._stage_rank[stage] == self._comm.rank:
            self._handed_over[tag] = left  # one rank, one memory: no message
        else:
            self._sends.append(self._comm.isend(left, self._stage_rank[stage], tag))

    def send_to_all(self, tensor: torch.Tensor, tag: int) -> None:
        """Send the same to every other rank."""
        others = [rank for rank in range(self._comm.size) if rank != self._comm.rank]
        self._sends += [self._comm.isend(tensor, rank, tag) for rank in others]

    def finish(self) -> None:
        """Wait until everything has gone."""
        self._comm.wait_sent(self._sends)

    def _post(self) -> None:
        """Post the next receives, as far as it is known what will come."""
        while self._due and len(self._posted) < AHEAD:
            action = self._due[0]
            stage = self._shapes[action.stage]
            form = stage.input if action.kind == "F" else stage.output
            if form is None:
                return  # those after it have to wait as well: they are taken in this order
            self._due.popleft()
            if not self._has_no_gradient(action):
                shape, dtype = form
                buffer = torch.empty(shape, dtype=dtype, device=self._comm.device)
                source = self._neighbour(action)
                assert source is not None  # or it would not be due
                self._posted.append(self._comm.irecv(buffer, source, self._tag(action)))

    def _neighbour(self, action: Action) -> int | None:
        """The other rank that sends what `action` receives."""
        source = action.stage + RECEIVES_FROM[action.kind]
        if not 0 <= source < len(self._stage_rank):
            return None
        rank = self._stage_rank[source]
        return None if rank == self._comm.rank else rank

    def _has_no_gradient(self, action: Action) -> bool:
        output = self._shapes[action.stage].output
        return action.kind != "F" and output is not None and not differentiable(output[1])

    def _tag(self, action: Action) -> int:
        """The number of what `action` receives."""
        return 2 * (action.microbatch * len(self._stage_rank) + action.stage) + (action.kind != "F")
