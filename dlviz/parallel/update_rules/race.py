"""Where update rules go on a surface, and a race of them, each at the best of several rates.

rule       rate    steps   range
SGD        0.077   67      67 to 67        the step from which it stays near the minimum
AdaGrad    1.28    5       3 to 6
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dlviz.counts import check_counts
from dlviz.parallel.update_rules.rule import Rule, Tensor

if TYPE_CHECKING:
    import pandas


def descend(rule: Rule, surface: Callable[..., Tensor], start: Any, steps: int) -> Tensor:
    """The path of `rule` from `start`: the points (steps + 1, dims) of float64 at which it took the
    gradient of `surface(x, y, ...)`, the start first.

    `start` (dims, ...) may hold several starts, for a surface that is a function elementwise; the
    points are then (steps + 1, dims, ...).
    """
    check_counts(0, steps=steps)
    point = torch.as_tensor(start, dtype=torch.float64).clone().requires_grad_()
    found = [point.detach().clone()]
    for _ in range(steps):
        rule.step([point], torch.autograd.grad(surface(*point).sum(), [point]))
        found.append(point.detach().clone())
    return torch.stack(found)


def steps_until(points: Tensor, near: float) -> Tensor:
    """Of each path of `points` (steps + 1, dims, ...) the step from which it stays within `near` of
    0, a float; infinite where its last point lies farther away."""
    away = ~(points.norm(dim=1) <= near)  # (steps + 1, ...), also where it is no number
    number = torch.arange(1, len(points) + 1.0).view(-1, *[1] * (away.dim() - 1))
    last = (away * number).amax(dim=0)  # how many points there are up to the last one away
    return last.masked_fill(last == len(points), torch.inf)


def race(
    rules: Mapping[str, Rule],
    surface: Callable[..., Tensor],
    starts: Sequence[Sequence[float]],
    rates: Sequence[float],
    *,
    near: float = 0.01,
    steps: int = 600,
) -> pandas.DataFrame:
    """Run each of `rules`, new ones, at each of `rates` from each of `starts`, points (x, y, ...),
    down `surface(x, y, ...)`, a function elementwise whose minimum is at 0.

    One row a rule: the `rate` with the fewest steps until it stays within `near` of the minimum, in
    the median over the starts; these `steps`, and their `range` over the starts. Infinite: not in
    `steps` steps. Raises ValueError without a start or a rate.
    """
    import pandas

    check_counts(starts=len(starts), rates=len(rates))
    rows = {}
    begin = torch.tensor(starts, dtype=torch.float64).T[:, None]  # (dims, 1, starts)
    for name, rule in rules.items():
        rule.lr = torch.tensor(rates, dtype=torch.float64)[:, None]  # pyright: ignore
        points = descend(rule, surface, begin.repeat(1, len(rates), 1), steps)
        took = steps_until(points, near).sort(dim=1).values  # (rates, starts)
        middle = took[:, (len(starts) - 1) // 2]
        best = int(middle.argmin())
        least, most = took[best, 0].item(), took[best, -1].item()
        row = {"rate": rates[best], "steps": middle[best].item(), "range": f"{least:g} to {most:g}"}
        rows[name] = row
    return pandas.DataFrame.from_dict(rows, orient="index").rename_axis("rule")
