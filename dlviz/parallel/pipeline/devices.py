"""The devices on which a lab runs a pipeline."""

from __future__ import annotations

import math

from dlviz.machine import Link, Machine, classroom
from dlviz.schedules import Schedule

FREE = Link(0.0, math.inf)  # messages take no time


def devices(schedule: Schedule, link: Link = FREE) -> Machine:
    """A classroom device for each rank of `schedule`: a forward through all stages of a rank takes
    10 ms. `link` prices a message."""
    return classroom(schedule.ranks, step=0.01 / schedule.chunks, link=link)
