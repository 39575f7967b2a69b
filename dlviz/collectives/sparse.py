r"""Sparse all-reduce: vectors that are mostly 0 travel as pairs of index and value, 8 bytes each.

    rank 0   3:a  7:b             3:a+c  7:b  9:d         step 0: 0 <-> 1, 2 <-> 3
                       merged                             step 1: 0 <-> 2, 1 <-> 3
    rank 1   3:c  9:d             3:a+c  7:b  9:d         step k: each rank and the one 2^k off

The sum has an entry wherever one of the vectors has one, so it fills up from step to step. With
more than N/2 of N entries its pairs would be more bytes than all N values (in float64, with 12
bytes a pair, more than 2N/3): then a rank goes on with a dense vector, and its Trace has a span
"turns dense" in that step. An entry that cancels to 0 stays an entry.

    doubling   recursive doubling with merging, nearest partner first: few steps; the same entries
               are sent again and again. For few entries.
    split      rank r receives all pairs of the r-th n-th of the vector, sums them, and sends the
               sum to all, as pairs unless that n-th turned dense. For many entries, still sparse.
    dense      the same, but the sums travel as dense vectors, perhaps coded in fewer bits ("DSAR").
               For a sum that would turn dense.

How does a receiver know how much comes? Only its sender does, so no receive is posted ahead: the
receiver looks at the next header first (`comm.probe`, in MPI MPI_Mprobe). A header announces shape
and dtype of every message here, so this adds no byte and no message; it costs a new buffer for each
message, and the time in which data could have moved while the receiver was busy. Shape and dtype
also say what comes: int32 (rows, entries) are pairs, floats (N,) are a dense vector. A rank without
entries sends an empty message, as nothing else says so.

Sizes depend on values, so there is no pattern of it as data: who sends to whom in which step is
that of patterns.butterfly, and twice that of patterns.direct.

Source: C. Renggli, S. Ashkboos, M. Aghagolzadeh, D. Alistarh, T. Hoefler, "SparCML:
High-Performance Sparse Communication for Machine Learning", SC 2019, section 5.3
(SSAR_Recursive_double, SSAR_Split_allgather, DSAR_Split_allgather; there the all-gather is by
doubling, here each rank sends to each, which any number of ranks can). In PyTorch:
torch.distributed.all_reduce of sparse tensors, where gloo sends all pairs to all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm
from dlviz.collectives.direct import to_all
from dlviz.collectives.fold import staying
from dlviz.collectives.pairs import (
    Pairs,
    checked,
    cut,
    dense,
    holding,
    is_dense,
    joined,
    merged,
    packed,
    settled,
    unpacked,
)  # fmt: skip

ALGORITHMS = ("doubling", "split", "dense")


def by_hand(comm: Comm, entries: dict[int, float]) -> None:
    """The sum over a power of two of ranks, entry by entry: read this one first. `entries`, values
    by index, is changed in place. `all_reduce` sends 8 bytes an entry instead of 16."""
    distance = 1
    while distance < comm.size:
        partner = comm.rank ^ distance  # nearest first: the longest messages come last
        mine = torch.tensor(sorted(entries.items()), dtype=torch.float64)  # (entries, 2)
        sending = comm.isend(mine, partner)
        arrived = comm.probe(partner)  # how many entries the partner has
        comm.recv(arrived, partner)
        sending.wait()
        for index, value in arrived.tolist():
            entries[int(index)] = entries.get(int(index), 0.0) + value
        distance *= 2


def all_reduce(
    comm: Comm,
    vector: torch.Tensor | Pairs,
    algorithm: str = "doubling",
    bits: int | None = None,
) -> torch.Tensor | Pairs:
    """The sum of all ranks' vectors, to the same bits on every rank, by one of `ALGORITHMS`.

    `vector` is a tensor of float32 or float64, any shape, which ends with the sum and is returned;
    or `Pairs`, whose sum is returned: Pairs, or (length,) values if it turned dense. With
    algorithm="dense", `bits` codes the summed parts by QSGD (`dlviz.compression`), whose rounding
    follows torch.manual_seed; without it, or with fewer elements than ranks, they have all bits.
    If the tensor is watched, its snapshots show what the rank holds from step to step, as pairs or
    dense: `widgets.MessagePlayer` draws them.

    Raises ValueError for another algorithm, for an index that is not ascending or out of range, for
    values of another dtype, and where ranks give different lengths, dtypes, algorithms or bits.

    Cost, with k entries a rank, u of N in the sum, pairs of b = 8 bytes (float64: 12) and values of
    v = 4 (8), a message never longer than dense. doubling: lg n steps, a rank sends b * k to
    b * 2^s * k bytes in step s; off powers of two lg n' + 2 steps, as in fold.py. split: 2 steps,
    with evenly spread entries a rank sends (n-1)/n * b * (k + u). dense: 2 steps,
    (n-1)/n * (b * k + v * N).
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(
            f"algorithm={algorithm!r} is no sparse all_reduce: use one of {', '.join(ALGORITHMS)}."
        )
    if bits is not None and algorithm != "dense":
        raise ValueError(
            f"bits={bits!r} codes dense vectors, and algorithm={algorithm!r} sends pairs: use "
            'algorithm="dense", or leave bits out.'
        )
    given = checked(vector)
    coder = None if bits is None else _coder(comm, bits)
    shape_only = given.values.new_empty(1).expand(given.length)
    comm.agree(f"sparse_{algorithm}", shape_only, -1 if bits is None else bits)
    held = packed(given.index.cpu(), given.values.cpu())
    with comm.moving(None if isinstance(vector, Pairs) else vector):
        held = settled(comm, held, given.length, round=-1)  # before the first step
        with holding(comm, algorithm, held, given.length, round=0):
            if algorithm == "doubling":
                total = _doubling(comm, held, given.length)
            else:
                total = _split(comm, held, given, algorithm == "dense", coder)
        with holding(comm, "sum", total, given.length):
            return _as_given(vector, given, total)


def _doubling(comm: Comm, held: torch.Tensor, length: int) -> torch.Tensor:
    """Recursive doubling over the ranks that stay; the first ranks fold before and unfold after."""
    members = staying(comm.size)
    folded = comm.rank < 2 * (comm.size - len(members))
    first, levels = int(len(members) < comm.size), len(members).bit_length() - 1
    if comm.rank not in members:  # the next rank goes on for both
        with holding(comm, "fold", held, length, round=0):
            comm.isend(held, comm.rank + 1).wait()
        with holding(comm, "unfold", held, length, round=first + levels):
            return _received(comm, comm.rank + 1)
    if folded:
        with holding(comm, "fold", held, length, round=0):
            held = merged(comm, held, _received(comm, comm.rank - 1), length)
    place = members.index(comm.rank)
    for level in range(levels):
        partner = members[place ^ (1 << level)]
        with holding(comm, "exchange", held, length, round=first + level):
            sending = comm.isend(held, partner)
            arrived = _received(comm, partner)
            sending.wait()  # before anything is added to it
            held = merged(comm, held, arrived, length)
    if folded:
        with holding(comm, "unfold", held, length, round=first + levels):
            comm.isend(held, comm.rank - 1).wait()
    return held


def _split(
    comm: Comm, held: torch.Tensor, given: Pairs, to_dense: bool, coder: Any
) -> torch.Tensor:
    """Sum the n-th that is this rank's, then gather all."""
    bounds = [rank * given.length // comm.size for rank in range(comm.size + 1)]
    own = bounds[comm.rank + 1] - bounds[comm.rank]
    with holding(comm, "split", held, given.length, round=0):
        parts = _to_all(comm, cut(held, bounds))
        chunk = dense(parts[0], own) if to_dense else parts[0]
        for part in parts[1:]:  # in rank order, whatever the order of arrival
            chunk = merged(comm, chunk, part, own)
    with holding(comm, "gather", chunk, own, round=1, first=bounds[comm.rank]):
        if coder is None or given.length < comm.size:
            return joined(_to_all(comm, [chunk] * comm.size), bounds)
        code = coder.encode(chunk)
        codes = zip(*(_to_all(comm, [part] * comm.size) for part in code), strict=True)
        sizes = np.diff(bounds).tolist()
        # This rank too takes what the others decode, not what it had.
        chunks = [coder.decode([*each], n) for each, n in zip(codes, sizes, strict=True)]
        return torch.cat(chunks).to(given.values.dtype)


def _to_all(comm: Comm, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Send part r to rank r: the parts for this rank, by sender."""
    return [part.cpu() for part in to_all(comm, parts)]


def _received(comm: Comm, src: int) -> torch.Tensor:
    """The next message of `src`, whose size only its header says."""
    arrived = comm.probe(src)
    comm.recv(arrived, src)
    return arrived.cpu()


def _as_given(vector: torch.Tensor | Pairs, given: Pairs, total: torch.Tensor) -> Any:
    """The sum in the form in which the vector was given."""
    device = given.values.device
    if not isinstance(vector, Pairs):
        vector.detach().copy_(dense(total, given.length).view(vector.shape))
        return vector
    if is_dense(total):
        return total.to(device)
    index, values = unpacked(total)
    return Pairs(index.to(device), values.to(device), given.length)


def _coder(comm: Comm, bits: int) -> Any:
    """QSGD, its draws apart from those of other ranks and calls."""
    from dlviz import compression

    seed = int(torch.randint(2**31, ())) + comm.rank
    return compression.make("qsgd", bits=bits, seed=seed)
