"""What a secure sum is compared with: the clients' vectors in fixed point, added up in the open."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from dlviz.federated.secure.terms import Terms

NOBODY = frozenset()


def agreed(n, k=None, count=3, clip=1.0, bits=32):
    return Terms((count,), "float64", n, n // 2 + 1 if k is None else k, clip, bits)


def data(terms, seed=0):
    """A vector for each client; some values are beyond the clip."""
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, terms.shape, generator=generator, dtype=torch.float64)
    return {each: draw() * terms.clip for each in range(1, terms.clients + 1)}


def plain_sum(terms, vectors):
    """The residues of the sum of what the vectors are in fixed point."""
    steps = [
        round(max(-terms.clip, min(terms.clip, value)) * 2**terms.code.fraction)
        for vector in vectors
        for value in vector.tolist()
    ]
    columns = [sum(steps[i :: terms.count]) % 2**terms.bits for i in range(terms.count)]
    return np.array(columns, np.uint64)
