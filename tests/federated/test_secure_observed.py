"""A secure sum seen from the server's desk, and one from which a client drops out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dlviz import launch
from dlviz.federated.secure import observed_sum, secure_sum
from dlviz.federated.secure.fixed_point import FixedPoint

VECTORS = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0)).clamp(-2, 2)
AGREED = {"threshold": 3, "clip": 2.0}


def own(comm):
    return VECTORS[comm.rank - 1] if comm.rank else torch.zeros(3000)


@pytest.fixture(scope="module")
def run():
    def both(comm):
        return observed_sum(comm, own(comm), **AGREED), secure_sum(comm, own(comm), **AGREED)

    return launch(both, 5)


def test_the_sum_is_that_of_secure_sum_and_clients_have_nothing(run):
    seen, plain = run.results[0]
    assert torch.equal(seen.total, plain) and run.results[1:] == [(None, None)] * 4
    assert (seen.total - VECTORS.sum(0)).abs().max() < 1e-6


def test_the_masked_vectors_are_in_hand_look_uniform_and_are_not_the_clients(run):
    seen, _ = run.results[0]
    assert [*seen.masked] == [1, 2, 3, 4] and seen.terms.code == FixedPoint(4, 2.0, 32)
    for client, residues in seen.masked.items():
        assert residues.dtype == np.uint32 and residues.shape == (3000,)
        sixteenths = np.bincount(residues >> 28, minlength=16)
        assert 3000 / 16 / 2 < sixteenths.min() <= sixteenths.max() < 3000 / 16 * 1.5
        bare = seen.terms.code.encode(VECTORS[client - 1])
        assert (residues == bare).mean() < 0.01
        assert (seen.terms.code.decode(bare) - VECTORS[client - 1]).abs().max() < 1e-6


@pytest.mark.parametrize("exchanges", [1, 2, 3])
def test_a_client_drops_out_after_so_many_exchanges_and_the_sum_is_of_those_who_masked(exchanges):
    def worker(comm):
        leaves = exchanges if comm.rank == 2 else None
        return observed_sum(comm, own(comm), **AGREED, leaves_after=leaves)

    run = launch(worker, 5, may_lose=(2,))
    assert [*run.lost] == [2] and "DroppedOut" in run.lost[2].how
    heard = [1, 3, 4] if exchanges < 3 else [1, 2, 3, 4]  # its masked vector is out after three
    assert [*run.results[0].masked] == heard
    total = VECTORS[[client - 1 for client in heard]].sum(0)
    assert (run.results[0].total - total).abs().max() < 1e-6
