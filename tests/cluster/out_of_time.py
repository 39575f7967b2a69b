"""A run whose time is up when its ranks are where the test wants them, however long they took."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import monotonic

from dlviz.cluster.parent.supervise import Supervisor

MOMENT = 0.3  # s that a rank takes at most from saying that it is there to being there


def when(monkeypatch, there: Callable[[], bool]) -> None:
    """Have the time of the next run be up a moment after `there` is true."""
    judge, since = Supervisor._judge, []

    def judge_late(self: Supervisor) -> None:
        if there():
            since.append(monotonic())
            if monotonic() - since[0] > MOMENT:
                Supervisor._judge = judge
                self.started = -math.inf
        judge(self)

    monkeypatch.setattr(Supervisor, "_judge", judge_late)
