"""When answers would arrive: a model of the times of clients that share a process.

    arrival of client k = begin + 2 α_k + bytes / β_k + steps x step x factor_k

Up to 8 clients have a process each, and on a paced run a device and a clock of their own. A
thousand share one: their training is real, but its time says nothing about theirs. With `Arrivals`
the server closes its rounds by this model instead: it decides who is late, who comes first and how
long a round lasts, and the round's record says `modelled`. The Trace still shows the wall clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from dlviz.federated.messages import Answer
    from dlviz.federated.round_record import Open


@dataclass(frozen=True)
class Arrivals:
    """`step`: seconds of a local step, on one batch; `factors`: how many times as long client k
    takes; `latency` (s) and `bandwidth` (bytes/s) of the clients' links, one for all or each."""

    step: float
    factors: Sequence[float] | None = None
    latency: float | Sequence[float] = 0.0
    bandwidth: float | Sequence[float] = math.inf

    def seconds(self, client: int, steps: int, nbytes: int) -> float:
        """From the start of a round to the arrival of a client's answer."""
        factor, latency, bandwidth = (
            each if isinstance(each, int | float) else each[client]
            for each in (self.factors or 1.0, self.latency, self.bandwidth)
        )
        return 2 * latency + nbytes / bandwidth + steps * self.step * factor

    def check(self, clients: int) -> None:
        """Raise ValueError for an invalid time, or unless there is one for each client."""
        for name in ("step", "factors", "latency", "bandwidth"):
            value = getattr(self, name)
            each = [value] * clients if isinstance(value, int | float) else value or [1] * clients
            if len(each) != clients:
                raise ValueError(
                    f"arrivals: {len(each)} {name} do not fit {clients} clients: give one for each."
                )
            for k, one in enumerate(each):
                if not (one > 0 or one == 0 and name == "latency"):
                    raise ValueError(f"arrivals: {name} of client {k} is {one!r}: use more than 0.")


class ModelledClock:
    """The server's time by `arrivals`, and the answers that would still be in transit."""

    def __init__(self, arrivals: Arrivals, steps: Callable[[int], int], sizes: Sequence[int]):
        arrivals.check(len(sizes))
        self.arrivals, self.steps = arrivals, steps  # steps of so many examples
        self.sizes = sizes  # examples of each client
        self.now = 0.0
        self.coming: list[tuple[float, Answer, torch.Tensor]] = []

    def busy(self) -> set[int]:
        """The clients still working on an earlier round."""
        return {answer.client for when, answer, _ in self.coming if when > self.now}

    def left(self) -> list[int]:
        """The clients whose answers arrived after the last round."""
        return [answer.client for _, answer, _ in self.coming]

    def close(self, now: Open, deadline: float | None, wanted: int, keep: bool) -> float:
        """Take out of the round the answers that would have arrived after its end, and add those of
        earlier rounds that arrive during it (`keep` them, or drop them). Returns how long it lasts,
        in seconds."""
        arrivals = sorted(
            (self.now + self._seconds(now, answer, row), k)
            for k, (answer, row) in now.answers.items()
        )
        last = max((when for when, _ in arrivals), default=self.now)
        closes = math.inf if deadline is None else self.now + deadline
        if len(arrivals) >= wanted:
            last = arrivals[wanted - 1][0]
        elif now.busy and deadline is not None:
            last = closes  # it waits for them
        end = min(last, closes)
        for when, answer, row in self.coming:
            if when <= end:
                now.file(answer, row, "", keep)
        self.coming = [each for each in self.coming if each[0] > end]
        for place, (when, k) in enumerate(arrivals):
            if when > end or place >= wanted:
                self.coming.append((when, *now.answers.pop(k)))
                now.busy.add(k)
        lasted, self.now = end - self.now, end
        return lasted

    def _seconds(self, now: Open, answer: Answer, row: torch.Tensor) -> float:
        nbytes = now.weights.nbytes + row.nbytes
        return self.arrivals.seconds(answer.client, self.steps(self.sizes[answer.client]), nbytes)
