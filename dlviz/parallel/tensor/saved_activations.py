"""What a tensor-parallel block keeps for its backward on each rank, beside the published formula.

The formula (dlviz/sim/activations.py) counts values of 16 bits. What autograd has kept of the real
block differs from it by wider values, and by tensors that the formula leaves out as they are small:
mean and 1/std of each token, which a norm keeps, and the causal mask, (s, s) once for all sequences
and heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dlviz.cluster import Comm
from dlviz.models import kept_tensors
from dlviz.parallel.tensor.transformer import ParallelBlock, own_tokens
from dlviz.sim import saved_activations

if TYPE_CHECKING:
    import pandas


def kept_by_layer(
    comm: Comm,
    sequence: int,
    batch: int,
    hidden: int,
    heads: int,
    *,
    sequence_parallel: bool = False,
    dtype: torch.dtype = torch.float32,
) -> pandas.DataFrame:
    """Count what a block with dropout keeps on this rank of `comm`, the tensor-parallel axis. A
    worker for `launch`.

    A row a layer, in bytes: `published` (16 bit), `wider` (what values of this dtype add to that),
    `beside` (what the formula leaves out) and their sum, `counted`; `operations` are those that
    will need it.
    """
    import pandas

    mine = own_tokens(comm, sequence, sequence_parallel)
    block = ParallelBlock(
        comm, hidden, heads, heads, 0.1, seed=0, number=0, sequence_parallel=sequence_parallel
    )
    x = torch.ones(batch, mine.stop - mine.start, hidden, dtype=dtype, requires_grad=True)
    tensors = kept_tensors(block.to(dtype), x)
    layer = tensors.layer.str.removesuffix(".product")  # which is a layer's own
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
