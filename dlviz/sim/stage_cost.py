"""What a microbatch costs a stage of a pipeline."""

from __future__ import annotations

from typing import NamedTuple


class StageCost(NamedTuple):
    """Seconds of a microbatch on a stage, a run of blocks: math, and all-reduces along tp, in the
    forward and in the backward; `weights`: the part of the backward's math for the weights'
    gradients; `sent`: bytes that a rank sends along tp."""

    forward: float
    backward: float
    forward_tp: float
    backward_tp: float
    weights: float
    sent: float

    @property
    def seconds(self) -> float:
        return self.there + self.back

    @property
    def there(self) -> float:
        return self.forward + self.forward_tp

    @property
    def back(self) -> float:
        return self.backward + self.backward_tp

    def and_then(self, other: StageCost) -> StageCost:
        return StageCost(*(one + two for one, two in zip(self, other, strict=True)))

    def times(self, many: int) -> StageCost:
        return StageCost(*(many * each for each in self))
