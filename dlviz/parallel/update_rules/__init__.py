"""Update rules: how a gradient moves the weights, from SGD to Adam, one formula each.

    w  the weights           g  their gradient, at w            η  lr
    t  the step, from 1      μ  momentum    β  betas, alpha     ε  eps

Each owner of weights has its own rule object: a worker with the whole model, a rank with a shard of
the parameters, a server with its slice. The rule stores its state (`state_tensors` as large as the
weights), and `lr` may be set between any two steps.

Each rule gives the numbers of torch.optim (rules.py). Where the lecture's table prints another
formula, a class `AsPrinted` computes it (printed.py), so that the two can be compared.

Source: Ben-Nun and Hoefler, "Demystifying Parallel and Distributed Deep Learning", ACM Computing
Surveys 52(4), 2019, table 2, which the lecture shows. PyTorch's names: torch.optim.SGD, Adagrad,
RMSprop, Adam, and lr_scheduler.ExponentialLR for the decaying rate.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dlviz.counts import check_counts
from dlviz.parallel.update_rules.printed import (
    AdaGradAsPrinted,
    AdamAsPrinted,
    MomentumAsPrinted,
    NesterovAsPrinted,
    RMSPropAsPrinted,
)
from dlviz.parallel.update_rules.rule import Rule, Tensor
from dlviz.parallel.update_rules.rules import SGD, AdaGrad, Adam, Decay, Momentum, Nesterov, RMSProp

# name: the rule, and what the lecture's table prints
_RULES: dict[str, tuple[type[Rule], type[Rule]]] = {
    "sgd": (SGD, SGD),
    "decay": (Decay, Decay),
    "momentum": (Momentum, MomentumAsPrinted),
    "nesterov": (Nesterov, NesterovAsPrinted),
    "adagrad": (AdaGrad, AdaGradAsPrinted),
    "rmsprop": (RMSProp, RMSPropAsPrinted),
    "adam": (Adam, AdamAsPrinted),
}
NAMES = tuple(_RULES)


def make(
    name: str,
    lr: float,
    *,
    printed: bool = False,
    curvature: float | None = None,
    **options: Any,
) -> Rule:
    """The rule `name`, one of NAMES; with `printed` as the lecture's table prints it.

    options: torch.optim's: `momentum` (0.9 here), `betas`, `alpha`, `eps`, and `gamma` of decay.
    `curvature`: the largest of the loss, if known; a rate outside the stable range warns.
    Raises ValueError for an unknown rule or option.
    """
    if name not in _RULES:
        raise ValueError(f"rule={name!r} is not known: use {', '.join(NAMES[:-1])} or {NAMES[-1]}.")
    kind = _RULES[name][printed]
    known = [option for option in inspect.signature(kind).parameters if option != "lr"]
    if unknown := [option for option in options if option not in known]:
        have = f"use {' and '.join(known)}" if known else "it has lr alone"
        raise ValueError(f"rule {name!r} has no option {unknown[0]!r}: {have}.")
    rule = kind(lr, **options)
    if curvature is not None and not lr < rule.stable_rate(curvature):
        warnings.warn(
            f"lr={lr:g} is outside the stable range of {name}{' as printed' * printed} on "
            f"curvature {curvature:g}, where its steps grow: use less than "
            f"{rule.stable_rate(curvature):.4g}.",
            RuntimeWarning,
            stacklevel=2,
        )
    return rule


def as_rule(rule: str | Any, lr: float) -> Any:
    """The rule named `rule` at `lr`; or `rule` itself, if it is an object with a `step`."""
    return make(rule, lr) if isinstance(rule, str) else rule


def descend(
    rule: Rule, surface: Callable[..., Tensor], start: Sequence[float], steps: int
) -> Tensor:
    """The path of `rule` from `start`: the points (steps + 1, dims) of float64 at which it took the
    gradient of `surface(x, y, ...)`, the start first."""
    check_counts(0, steps=steps)
    point = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    found = [point.detach().clone()]
    for _ in range(steps):
        rule.step([point], torch.autograd.grad(surface(*point), [point]))
        found.append(point.detach().clone())
    return torch.stack(found)
