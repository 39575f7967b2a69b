"""A parameter of which this rank has a part, and which torch's clip_grad_norm_ must not take.

    torch.nn.utils.clip_grad_norm_    |g| of this rank's parts: each rank scales by another factor,
                                      and what all of them hold as a whole differs from then on
    tensor.clip_gradients             |g| of the whole model, the same on every rank

A part looks like any tensor, so torch would clip it silently. Here it refuses, and nothing else
changes: optimizers, state_dict and copies treat it as an nn.Parameter. A norm that a program takes
of `p.grad` itself is the program's.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grad
from torch.optim.optimizer import _foreach_supported_types

from dlviz.cluster import Comm

CLIPS: Any = clip_grad.clip_grad_norm_.__wrapped__.__code__  # pyright: ignore
GRADIENT: Any = torch.Tensor.grad


class CutParameter(nn.Parameter):
    """This rank's part of a parameter that is cut over the ranks of an axis."""

    @property
    def grad(self) -> torch.Tensor | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As of any tensor. Raises ValueError where clip_grad_norm_ asks."""
        frame: Any = sys._getframe(1)
        if frame.f_code.co_filename is CLIPS.co_filename and CLIPS in (
            frame.f_code,
            frame.f_back.f_code,  # of its comprehension, up to Python 3.11
        ):
            raise ValueError(
                f"clip_grad_norm_ of a parameter of {tuple(self.shape)} that is cut over ranks "
                "would take the norm of this rank's part alone: use "
                "dlviz.parallel.tensor.clip_gradients(comm, net, most), or clip= of a strategy."
            )
        return GRADIENT.__get__(self)

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        GRADIENT.__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        GRADIENT.__delete__(self)


def cut_parameter(comm: Comm, part: torch.Tensor) -> nn.Parameter:
    """This rank's `part` as a parameter; on one rank it is the whole."""
    return nn.Parameter(part) if comm.size == 1 else CutParameter(part)


# As torch.distributed.tensor does for its own: optimizers move all of them in one call on a GPU.
_foreach_supported_types.append(CutParameter)
