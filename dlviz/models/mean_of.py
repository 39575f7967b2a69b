"""What a loss is the mean of: the weights of the parts of a batch, and whether it is the rows.

    L = sum_k w_k L_k / sum_k w_k      w_k rows by default: only right for a mean over rows

A loss that ignores some targets, weighs classes, or adds up is a mean over something else, and only
`weight=` can say over what. Without it, a loss is tried on parts apart and together: a mean over
rows is then their mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from dlviz.models.language import ignored_by

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Weight = Callable[..., float | torch.Tensor]
TORCH_LOSSES = nn.CrossEntropyLoss, nn.NLLLoss
OF_ELEMENTS = {  # torch's means over all elements: over rows, where outputs and labels are alike
    nn.MSELoss: functional.mse_loss,
    nn.L1Loss: functional.l1_loss,
    nn.SmoothL1Loss: functional.smooth_l1_loss,
    nn.HuberLoss: functional.huber_loss,
}
LABELS = ("labels", "targets")  # a parameter of a weight with this name gets them


def check_loss(loss: Any, weight: Any) -> None:
    """Raise ValueError for what is no loss, or no weight."""
    if isinstance(loss, type) or not callable(loss):
        raise ValueError(
            f"loss={loss!r} is no function of (outputs, labels): give one, as "
            "torch.nn.functional.mse_loss or torch.nn.MSELoss()."
        )
    if isinstance(weight, type) or not callable(weight):
        raise ValueError(f"weight={weight!r} is no function of (inputs, labels).")


def of_batch(weight: Weight) -> Callable[[Any, Any], float | torch.Tensor]:
    """`weight` as a function of (inputs, labels): one that needs only one argument, and names no
    labels or targets, gets inputs."""
    try:
        parameters = signature(weight).parameters.values()
    except ValueError:  # a builtin without a signature
        return lambda inputs, labels: weight(inputs)
    positional = Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD
    taken = [p for p in parameters if p.kind in positional]
    if any(p.default is Parameter.empty or p.name in LABELS for p in taken[1:]):
        return weight
    return lambda inputs, labels: weight(inputs)


def weighed(what: str, share: float | torch.Tensor) -> float:
    """`share` as a number. Raises ValueError unless the weight of `what` is finite, 0 or more."""
    share = float(share)
    if not (share >= 0 and math.isfinite(share)):
        raise ValueError(
            f"{what} weighs {share:g}: weight= has to give how many examples, or target tokens, "
            "its loss is the mean of, 0 or more."
        )
    return share


def weight_of(loss: Loss) -> Weight | None:
    """The weight that `loss` implies: the targets that count in a `token_loss` or in torch's cross
    entropy and NLL loss, each by the weight of its class; None for another loss."""
    ignored, classes = ignored_by(loss), None
    if ignored is None:
        means = _class_loss(loss)
        if means is None:
            return None
        ignored, classes = means

    def weight(inputs: Any, targets: torch.Tensor) -> float | torch.Tensor:
        if targets.is_floating_point():  # probabilities of classes: a mean over rows
            return len(targets)
        counted = targets != ignored
        return (
            counted.sum() if classes is None else classes.to(targets.device)[targets[counted]].sum()
        )

    return weight


def weight_on(loss: Loss, data: Iterable[tuple[Any, torch.Tensor]]) -> Weight | None:
    """As `weight_of`; None too where a loss of torch's counts each row of the `data`, inputs and
    labels, once."""
    means = None if ignored_by(loss) is not None else _class_loss(loss)
    if means is not None and means[1] is None:
        if all(y.dim() == 1 and bool((y != means[0]).all()) for _, y in data):
            return None
    return weight_of(loss)


def _class_loss(loss: Any) -> tuple[int, torch.Tensor | None] | None:
    """What `ignore_index` and `weight` are of torch's cross entropy or NLL loss, as a module, a
    function, or a `partial` of the function; None for another loss, or one that is no mean."""
    if any(isinstance(loss, k) and type(loss).forward is k.forward for k in TORCH_LOSSES):
        given = {name: getattr(loss, name) for name in ("ignore_index", "weight", "reduction")}
    else:
        given = loss.keywords if isinstance(loss, partial) and not loss.args else {}
        function = loss.func if given else loss
        if function not in (functional.cross_entropy, functional.nll_loss):
            return None
    if given.get("reduction", "mean") != "mean":
        return None
    return given.get("ignore_index", -100), given.get("weight")


def _means_elements(loss: Any) -> bool:
    """Whether `loss` is torch's mean of a function of each element, as a module or a function."""
    if type(loss) in OF_ELEMENTS:
        return loss.reduction == "mean"
    return any(loss is function for function in OF_ELEMENTS.values())


def in_step(weight: Weight) -> tuple[Weight, Weight]:
    """`weight` as a function of (inputs, labels), and as one of the next forward, which has no
    labels."""
    last: list[float | torch.Tensor] = [0.0]

    def of_both(inputs: Any, labels: Any) -> float | torch.Tensor:
        last[0] = of_batch(weight)(inputs, labels)
        return last[0]

    return of_both, lambda *inputs, **keywords: last[0]


class MeanOverRows:
    """`loss` of parts of one batch, called for one after the other; `check` says whether it is the
    mean over their rows.

    Torch's means over elements are known to be it. Of any other loss the first part is tried in
    pieces of unequal numbers of rows, each other one together with the previous one. So a row that
    does not count is seen: of 2 and of 3 rows no same share is ignored but none and all. Not seen
    are rows of several targets, where the pieces happen to ignore the same share of these; nor
    outputs without rows (B, or a multiple, of (B, ...)).
    """

    def __init__(self, loss: Loss):
        self._loss = loss
        self._of_elements = _means_elements(loss)
        self._before: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        # Loss of both parts together, mean of the two, and tolerance for rounding: for `check`.
        self._tried: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self._of_elements and outputs.shape == labels.shape:
            return self._loss(outputs, labels)
        rows = len(labels)
        if not rows or not outputs.dim() or len(outputs) % rows:
            return self._loss(outputs, labels)
        copy = outputs.detach().clone()  # the loss may work in place
        value = self._loss(outputs, labels)
        if value.numel() == 1:
            with torch.no_grad():
                self._try(copy, labels, value.detach())
        return value

    def _try(self, outputs: torch.Tensor, labels: torch.Tensor, value: torch.Tensor) -> None:
        rows = len(labels)
        if self._before is not None:
            first, its_labels, its_value = self._before
            both = torch.cat([first, outputs]), torch.cat([its_labels, labels])
            shares = [len(each) / len(both[1]) for each in (its_labels, labels)]
            self._record(self._again(*both), [its_value, value], shares, both)
        elif rows > 1:
            sizes = [size for size in ([2, 3, rows - 5] if rows > 4 else [1, rows - 1]) if size]
            pieces = zip(
                outputs.split([size * (len(outputs) // rows) for size in sizes]),
                labels.split(sizes),
                strict=True,
            )
            values = [self._again(*piece) for piece in pieces]
            self._record(value, values, [size / rows for size in sizes], (outputs, labels))
        self._before = outputs, labels, value

    def _again(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        try:
            return self._loss(outputs.clone(), labels)
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"the loss fails on {len(labels)} rows, and did not on another number ({error}), "
                f"so that it cannot be checked to be a mean over rows; {ADVICE}"
            ) from error

    def _record(
        self,
        whole: torch.Tensor,
        parts: list[torch.Tensor],
        shares: list[float],
        given: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        size = whole.new_tensor(1.0)
        for tensor in given:
            if tensor.is_floating_point() and tensor.numel():  # class numbers are not rounded
                size = size * (1 + tensor.abs().max())
        slack = 64 * torch.finfo(whole.dtype).eps * (size + sum(part.abs() for part in parts))
        apart = sum(share * part for share, part in zip(shares, parts, strict=True))
        self._tried.append((whole, torch.as_tensor(apart), slack))

    def check(self) -> None:
        """Raise ValueError where the loss is no mean over rows."""
        for whole, apart, slack in self._tried:
            a, b = whole.item(), apart.item()
            if a != b and (a == a or b == b) and not abs(a - b) <= slack.item():
                raise ValueError(
                    f"the loss of some rows is {a:.6g}, and the mean over its parts, weighed by "
                    f"their rows, {b:.6g}: it is no mean over rows; {ADVICE}"
                )


ADVICE = (
    "make it a mean, and give weight=, a function of (inputs, labels) that counts the target "
    "tokens, or whatever else it is the mean of."
)
