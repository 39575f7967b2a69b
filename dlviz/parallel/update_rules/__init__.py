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
from typing import Any

import torch

from dlviz.models.options import Rates, squares
from dlviz.parallel.update_rules.moves import AS_IN, AnyRule, Moves, TorchRule
from dlviz.parallel.update_rules.printed import (
    AdaGradAsPrinted,
    AdamAsPrinted,
    MomentumAsPrinted,
    NesterovAsPrinted,
    RMSPropAsPrinted,
)
from dlviz.parallel.update_rules.race import descend, race, steps_until
from dlviz.parallel.update_rules.rule import Rule
from dlviz.parallel.update_rules.rules import SGD, AdaGrad, Adam, Decay, Momentum, Nesterov, RMSProp

__all__ = [
    "NAMES", "RATE", "SGD", "AdaGrad", "AdaGradAsPrinted", "Adam", "AdamAsPrinted", "AnyRule",
    "Decay", "Momentum", "MomentumAsPrinted", "Moves", "Nesterov", "NesterovAsPrinted", "RMSProp",
    "RMSPropAsPrinted", "Rates", "Rule", "TorchRule", "as_rule", "descend", "make", "race",
    "squares", "steps_until",
]  # fmt: skip

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
RATE = 0.1  # of a rule that is given none; of those that scale their steps torch.optim's
_RATES = {"adagrad": 1e-2, "rmsprop": 1e-2, "adam": 1e-3}


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


def as_rule(rule: Any, lr: float | None = None) -> Any:
    """The rule named `rule` at `lr`, by default RATE or, for a rule that scales its steps,
    torch.optim's; `rule` itself, if it is an object with a `step`; a torch optimizer, if it is a
    function that makes one of a list of parameters.

    Raises ValueError for anything else, and for a rate beside a rule that has its own.
    """
    if lr is not None and (isinstance(lr, bool) or not isinstance(lr, int | float)):
        raise ValueError(f"lr={lr!r} is no rate: use a number, 0 or more.")
    if isinstance(rule, str):
        return make(rule, _RATES.get(rule, RATE) if lr is None else lr)
    if isinstance(rule, torch.optim.Optimizer):
        raise ValueError(
            f"rule is a {type(rule).__name__} of the parameters of one process, and each rank "
            f"trains its own: give a function that makes it, as {AS_IN}."
        )
    if isinstance(rule, type) and issubclass(rule, Rule):
        raise ValueError(
            f"rule is the class {rule.__name__}: give a rule, {rule.__name__}(0.1) say."
        )
    if not callable(rule) and not hasattr(rule, "step"):
        raise ValueError(
            f"rule={rule!r} is none: give one of {', '.join(NAMES)}, a rule of "
            f"dlviz.parallel.update_rules, or a function that makes a torch optimizer, as {AS_IN}."
        )
    if lr is not None:
        raise ValueError(
            f"lr={lr!r} has no effect beside a rule that has its own rate: leave lr out, or name "
            "the rule, 'sgd' say."
        )
    if hasattr(rule, "step") and not isinstance(rule, type):
        return rule
    make_optimizer: Any = rule
    return TorchRule(make_optimizer)
