"""The activations that a tensor-parallel block saves on each rank, beside the published formula.

The formula (dlviz/sim/activations.py) counts values of 16 bits. What autograd saves of the real
block differs by wider values, and by small tensors that the formula leaves out: mean and 1/std of
each token, which a norm saves, and the causal mask, (s, s) once for all sequences and heads.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from dlviz.cluster import Comm
from dlviz.models import saved_tensors
from dlviz.parallel.tensor.transformer import ParallelBlock, own_tokens
from dlviz.sim import saved_activations

if TYPE_CHECKING:
    import pandas


def saved_by_layer(
    comm: Comm,
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    *,
    sequence_parallel: bool = False,
    dtype: torch.dtype = torch.float32,
) -> pandas.DataFrame:
    """Count the bytes that a block with dropout saves on this rank of `comm`, the tensor-parallel
    axis. A worker for `launch`.

    One row per layer, in bytes: `published` (16 bit), `wider` (added by values of this dtype),
    `beside` (what the formula leaves out) and their sum, `counted`; `operations` are those whose
    backward needs them.
    """
    import pandas

    mine = own_tokens(comm, sequence, sequence_parallel)
    block = ParallelBlock(
        comm, hidden, heads, heads, 0.1, seed=0, number=0, sequence_parallel=sequence_parallel
    )
    x = torch.ones(batch, mine.stop - mine.start, hidden, dtype=dtype, requires_grad=True)
    tensors = saved_tensors(block.to(dtype), x)
    layer = tensors.layer.str.removesuffix(".product")  # it belongs to its layer
    published, same = (
        pandas.Series(
            saved_activations(
                sequence, batch, hidden, heads, comm.size, sequence_parallel, itemsize=size
            )
        )
        for size in (2, dtype.itemsize)
    )
    counted = tensors.nbytes.groupby(layer).sum()
    table = pandas.DataFrame(
        {
            "published": published,
            "wider": same - published,
            "beside": counted - same,
            "counted": counted,
            "operations": tensors.operation.groupby(layer).agg(", ".join),
        }
    )
    return table.loc[published.index].rename_axis("layer")


def __getattr__(name: str) -> Any:
    if name == "kept_by_layer":
        warnings.warn(
            "kept_by_layer is called saved_by_layer now.", DeprecationWarning, stacklevel=2
        )
        return saved_by_layer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
