"""A block saves the published formula's bytes on a rank, plus those of wider values and of tensors
that the formula leaves out: each to the byte."""

import itertools

import pytest
import torch

import dlviz
from dlviz.models import saved_tensors
from dlviz.models.transformer import Block
from dlviz.parallel.tensor.saved_activations import saved_by_layer

SIZES = ((64, 2, 64, 4), (8, 3, 24, 4))  # s, b, h, a
GRID = list(itertools.product(SIZES, (False, True), (torch.float32, torch.bfloat16)))
PAIRS = [GRID[place] for place in (0, 3, 5, 6)]  # each two values of two axes together


def count_all(comm, cases):
    """The tables of 1, 2 and 4 ranks that share a block."""
    return {
        ranks: [
            saved_by_layer(axis, *sizes, sequence_parallel=cut, dtype=dtype)
            for sizes, cut, dtype in cases
        ]
        for ranks in (1, 2, 4)
        for axis in [comm.mesh(dp=4 // ranks, tp=ranks).tp]
    }


@pytest.mark.parametrize("cases", [PAIRS, pytest.param(GRID, marks=pytest.mark.sweep)], ids=len)
def test_a_rank_saves_the_formula_wider_values_statistics_and_the_causal_mask(cases):
    results = dlviz.launch(count_all, 4, args=(cases,)).results
    for found, ranks in itertools.product(results, (1, 2, 4)):
        for table, ((s, b, h, a), cut, dtype) in zip(found[ranks], cases, strict=True):
            assert (table.published + table.wider + table.beside == table.counted).all()
            whole = 10 if not cut else 10 / ranks
            formula = s * b * h * (whole + (24 + 5 * a * s / h) / ranks)
            assert table.published.sum() == pytest.approx(formula, rel=1e-12)
            masks = table.index.str.contains("drop")
            assert (table.wider == table.published * ~masks * (dtype.itemsize / 2 - 1)).all()
            tokens = b * s // (ranks if cut else 1)
            statistics = 2 * tokens * dtype.itemsize  # mean and 1/std
            beside = table.beside[table.beside != 0].to_dict()
            assert beside == {"norm1": statistics, "norm2": statistics, "attention": s * s}


def test_one_rank_saves_what_the_plain_block_saves():
    (table,) = dlviz.launch(saved_by_layer, 1, args=(8, 3, 24, 4)).results
    block = Block(24, 4, 4, 0.1, seed=0, number=0)
    plain = saved_tensors(block, torch.ones(3, 8, 24, requires_grad=True))
    layer = plain.layer.str.removesuffix(".product")
    assert plain.nbytes.groupby(layer).sum().to_dict() == table.counted.to_dict()


def test_the_former_name_of_saved_by_layer_is_accepted_with_a_warning():
    with pytest.warns(DeprecationWarning, match="kept_by_layer is called saved_by_layer now"):
        from dlviz.parallel.tensor.saved_activations import kept_by_layer

    assert kept_by_layer is saved_by_layer
