"""Point to point, between neighbouring stages: what an action receives and what it passes on.

    stage 1 on rank 1     F --activations-->    stage 2 on rank 2     a message, or where both
                          B <--gradient----                           live on one rank a hand-over

Every message has its own tag, and a receive is posted while the rank still computes earlier
actions. Shapes need not be given: the header of a stage's first message has them, and all later
messages have the same (shapes.py).
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

AHEAD = 8  # posted receives
Message = tuple[int, int, int, int]


class P2P:
    """The messages of a rank that works through `row`. `inputs` are the first stage's microbatches,
    `shapes` the shapes of the rank's stages."""

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
        self._receives: deque[Any] = deque()  # posted
        self._sends: list[Any] = []
        self._due = deque(
            one for action in row for one in action.halves if self._neighbour(one) is not None
        )

    def receive(self, action: Action) -> tuple[torch.Tensor | None, Message | None]:
        """The input of a forward, or the gradient of a stage's output (None for a W, and for the
        last stage's backward); and the message that brought it."""
        if action.kind == "F" and action.stage == 0:
            return self._inputs[action.microbatch].clone(), None  # a stage may work in place
        source = action.stage + RECEIVES_FROM[action.kind]
        if action.kind == "W" or source == len(self._stage_rank) or self._has_no_gradient(action):
            return None, None
        if self._stage_rank[source] == self._comm.rank:
            return self._handed_over.pop(self._tag(action)), None
        self._post()
        if not self._receives:  # the first message to this stage: its shape is unknown
            first = self._comm.probe(self._stage_rank[source], self._tag(action))
            self._shapes[action.stage].input = first.shape, first.dtype
            self._post()
        request = self._receives.popleft()  # in the order of the row, as they were posted
        self._post()  # before the wait, so that AHEAD of them stay posted
        request.wait()
        return request.tensor, request.message

    def pass_on(self, action: Action, left: torch.Tensor | None) -> None:
        """Give the next stage the output of `action`, if it has one."""
        if left is None:
            return
        stage = action.stage - RECEIVES_FROM[action.kind]
        tag = self._tag(action._replace(stage=stage))
        if self._stage_rank[stage] == self._comm.rank:
            self._handed_over[tag] = left  # one rank, one memory: no message
        else:
            self._sends.append(self._comm.isend(left, self._stage_rank[stage], tag))

    def send_to_all(self, tensor: torch.Tensor, tag: int) -> None:
        """Send `tensor` to every other rank."""
        others = [rank for rank in range(self._comm.size) if rank != self._comm.rank]
        self._sends += [self._comm.isend(tensor, rank, tag) for rank in others]

    def finish(self) -> None:
        """Wait until everything has been sent."""
        self._comm.wait_sent(self._sends)

    def _post(self) -> None:
        """Post the next receives, as far as their shapes are known."""
        while self._due and len(self._receives) < AHEAD:
            action = self._due[0]
            stage = self._shapes[action.stage]
            form = stage.input if action.kind == "F" else stage.output
            if form is None:
                return  # later ones wait as well: receives complete in this order
            self._due.popleft()
            if not self._has_no_gradient(action):
                shape, dtype = form
                buffer = torch.empty(shape, dtype=dtype, device=self._comm.device)
                source = self._neighbour(action)
                assert source is not None  # or it would not be due
                self._receives.append(self._comm.irecv(buffer, source, self._tag(action)))

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
        """The tag of the message that `action` receives."""
        return 2 * (action.microbatch * len(self._stage_rank) + action.stage) + (action.kind != "F")
