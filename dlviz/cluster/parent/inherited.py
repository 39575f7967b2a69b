"""What ranks take over from the launching process beside the worker: random seeds, torch's and
numpy's settings, logging, and which warnings are shown.

    launching process   torch.set_default_dtype(torch.float64)   --Inherited-->   a rank: the same
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import _tensor_str

NUMPY_SEEDS = 2**32
PRINTED = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
CUDNN = ("deterministic", "benchmark", "allow_tf32")


@dataclass(frozen=True)
class Inherited:
    """The settings of the launching process. `seed` is what all ranks begin with; `by_rank` adds
    the rank to it."""

    seed: int
    by_rank: bool
    dtype: torch.dtype
    deterministic: tuple[bool, bool]  # algorithms; a warning alone
    cudnn: dict[str, bool]
    printed: dict[str, Any]  # how torch prints tensors, and
    numpy: dict[str, Any]  # numpy arrays
    levels: dict[str, int]  # of loggers, "" the root
    handlers: list[tuple[str, int, logging.Formatter | None]]  # stream, level, format
    filters: list[Any]  # of warnings
    start_method: str | None  # of processes that a rank starts: a DataLoader's workers, say

    def settle(self, rank: int) -> None:
        """Make them this rank's."""
        seed = (self.seed + rank * self.by_rank) % 2**63
        # Without a device, torch.manual_seed would note the stack of each kind that may come.
        kinds = torch if torch.accelerator.is_available() else torch.default_generator
        kinds.manual_seed(seed)
        np.random.seed(seed % NUMPY_SEEDS)
        random.seed(seed)
        torch.set_default_dtype(self.dtype)
        if any(self.deterministic):  # else what is set already would load torch._dynamo
            on, warn_only = self.deterministic
            torch.use_deterministic_algorithms(on, warn_only=warn_only)
        for name, value in self.cudnn.items():
            setattr(torch.backends.cudnn, name, value)
        torch.set_printoptions(**self.printed)
        np.set_printoptions(**self.numpy)
        for name, level in self.levels.items():
            logger = logging.getLogger(name)
            if logger.level != level:  # to set it clears what all loggers know
                logger.setLevel(level)
        for stream, level, form in self.handlers:
            handler = logging.StreamHandler(getattr(sys, stream))
            handler.setLevel(level)
            handler.setFormatter(form)
            logging.getLogger().addHandler(handler)
        multiprocessing.set_start_method(self.start_method, force=True)
        warnings.resetwarnings()
        warnings.filters.extend(self.filters)  # pyright: ignore[reportAttributeAccessIssue]


def inherit(seed: int | None, by_rank: bool) -> Inherited:
    """The settings of this process. Without a `seed` one is drawn from torch's generator, as a
    DataLoader draws its own."""
    if seed is None:
        seed = int(torch.empty((), dtype=torch.int64).random_())
    shown = vars(_tensor_str.PRINT_OPTS)
    root = logging.getLogger()
    named = root.manager.loggerDict.items()
    levels = {name: one.level for name, one in named if isinstance(one, logging.Logger)}
    return Inherited(
        seed=seed,
        by_rank=by_rank,
        dtype=torch.get_default_dtype(),
        deterministic=(
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        cudnn={name: getattr(torch.backends.cudnn, name) for name in CUDNN},
        printed={name: shown[name] for name in PRINTED},
        numpy={**np.get_printoptions()},
        levels={"": root.level} | {name: level for name, level in levels.items() if level},
        handlers=[
            (stream, one.level, one.formatter)
            for one in root.handlers
            if isinstance(one, logging.StreamHandler) and (stream := _stream(one.stream))
        ],
        filters=list(warnings.filters),
        start_method=multiprocessing.get_start_method(allow_none=True),
    )


def _stream(stream: Any) -> str:
    """The name in `sys` of what a handler of logging writes to; "" for a file."""
    names = ("stderr", "stdout", "__stderr__", "__stdout__")
    return next((name.strip("_") for name in names if stream is getattr(sys, name)), "")
