"""How data parallelism scales, held to closed forms written out by hand."""

from __future__ import annotations

import pytest

from dlviz.sim.scaling import scaled

ALPHA, BETA, NBYTES = 1e-5, 1e-9, 4_000_000


def ring(ranks):
    return 2 * (ranks - 1) * (ALPHA + NBYTES / ranks * BETA)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("overlap", [0.0, 0.4, 1.0])
def test_a_shared_batch_takes_its_part_of_the_compute_and_what_no_compute_hides(ranks, overlap):
    found = scaled(ranks, NBYTES, 0.1, ALPHA, BETA, overlap)
    own = 0.1 / ranks
    assert found.compute == pytest.approx(own)
    assert found.communication == pytest.approx(ring(ranks))
    assert found.step == pytest.approx(own + max(ring(ranks) - overlap * own, 0))
    assert found.speedup == pytest.approx(0.1 / found.step)
    assert found.ratio == pytest.approx(ring(ranks) / own)


@pytest.mark.parametrize("ranks", [1, 4, 16])
def test_where_each_rank_has_a_batch_the_compute_stays_and_all_examples_count(ranks):
    found = scaled(ranks, NBYTES, 0.1, ALPHA, BETA, way="weak")
    assert found.compute == 0.1
    assert found.speedup == pytest.approx(ranks * 0.1 / (0.1 + ring(ranks)))


def test_what_hides_all_communication_makes_as_many_times_as_fast():
    assert scaled(8, NBYTES, 1.0, ALPHA, BETA, overlap=1.0).speedup == pytest.approx(8)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"way": "sideways"}, "way='sideways' is none"),
        ({"overlap": 1.5}, "overlap=1.5 is no part of the compute"),
        ({"compute": 0.0}, "compute=0.0 s is no time of a step"),
        ({"ranks": 0}, "ranks=0 cannot hold a collective"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(values, says):
    known = {"ranks": 4, "nbytes": NBYTES, "compute": 0.1, "alpha": ALPHA, "beta": BETA}
    with pytest.raises(ValueError, match=says):
        scaled(**{**known, **values})
