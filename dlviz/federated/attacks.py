"""What a dishonest client sends: three attacks on the weights that all clients share.

    label flipping   trains honestly, on labels that are false       poisoned data
    sign flip        its update, negated                             poisoned model
    scaling          its update, made large: by n it outweighs all   poisoned model

An update is w_k - w; `sign_flip` and `scale` take an update of any shape and return what is sent in
its place. The factor has no unit. The attacker knows its own data and the weights it received, not
what others send; one who knows that too can do more harm and is harder to detect (Baruch et al., "A
Little Is Enough", NeurIPS 2019). robust.py has the defences.

Source: Tolpegin et al., "Data Poisoning Attacks Against Federated Learning Systems", ESORICS 2020
(labels); Li et al., "RSA: Byzantine-Robust Stochastic Aggregation Methods", AAAI 2019 (sign);
Bagdasaryan et al., "How To Backdoor Federated Learning", AISTATS 2020, section 4 (scale).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from dlviz.counts import check_counts

Tensor = torch.Tensor


def by(
    attackers: Collection[int], attack: Callable[[Tensor], Tensor]
) -> Callable[[Tensor, int, int], Tensor]:
    """What `train` takes as `outgoing` where the clients `attackers` send `attack` of their update,
    and all others their update."""

    def outgoing(update: Tensor, client: int, number: int) -> Tensor:
        return attack(update) if client in attackers else update

    return outgoing


def flip_labels(labels: Tensor, classes: int) -> Tensor:
    """The labels (N,) to train on instead: label l becomes classes - 1 - l, so that 0 and 9 change
    places, 1 and 8, and so on.

    Raises ValueError for a label outside 0 to classes - 1.
    """
    check_counts(classes=classes)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(
            f"the labels reach from {int(labels.min())} to {int(labels.max())}, outside 0 to "
            f"{classes - 1}: give classes={int(labels.max()) + 1} or more, and labels from 0 on."
        )
    return classes - 1 - labels


def sign_flip(update: Tensor) -> Tensor:
    """The honest update, uphill."""
    return -update


def scale(update: Tensor, factor: float) -> Tensor:
    """The update times `factor`: with -10, one of ten clients undoes the work of all others."""
    return factor * update
