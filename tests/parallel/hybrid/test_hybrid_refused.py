"""What hybrid training refuses, on every rank, before its first step."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import dlviz
from dlviz.models import Transformer
from dlviz.parallel import hybrid

SIZES = {"layers": 4, "hidden": 16, "heads": 4, "vocabulary": 24, "sequence": 8}
FITS = {"dp": 2, "pp": 2, "tp": 2}


def transformer(**options):
    return Transformer(**SIZES | options)


def drawn(**options):
    with torch.device("meta"):
        return transformer(**options)


def text(seed=0):
    tokens = torch.randint(1, 24, (8, 9), generator=torch.Generator().manual_seed(seed))
    return [(tokens[:, :-1], tokens[:, 1:])]


def linear(*places):
    """Two stages, without those at other `places`."""
    return [nn.Linear(4, 4) if place in places else None for place in range(2)]


PADDING = [(torch.ones(2, 8, dtype=torch.int64), torch.full((2, 8), -100))]
OWN: dict[str, Any] = {"loss": nn.functional.mse_loss}
ROWS = [(torch.ones(4, 4), torch.ones(4, 4))]

# The arguments on a rank, and the error.
CASES: list[tuple[Any, str]] = [
    (lambda rank: (transformer(), text(), {"dp": 2, "pp": 2, "tp": 1}),
     r"mesh \{'dp': 2, 'pp': 2, 'tp': 1\} has 4 places for the 8 ranks"),
    (lambda rank: (transformer(), text(), {"dp": 2, "pp": 4, "tp": 0}),
     "tp=0 is no length of an axis: use 1 where the model is not cut along it"),
    (lambda rank: (transformer(), text(), FITS | {"dp": 2.0}), "dp=2.0 is no length of an axis"),
    (lambda rank: (transformer(), text(), FITS | {"order": ("dp", "tp")}),
     r"order=\('dp', 'tp'\) has to name each of dp, pp and tp once"),
    (lambda rank: (transformer(), text(), FITS | {"order": ("dp", "dp", "tp")}),
     "has to name each"),
    (lambda rank: (transformer(layers=3), text(), {"dp": 1, "pp": 4, "tp": 2}),
     "the Transformer has 3 blocks for 4 stages, and each stage needs one or more"),
    (lambda rank: (transformer(), text(), {"dp": 1, "pp": 4, "tp": 2, "schedule": "interleaved"}),
     r"has 4 blocks for 8 stages.*use pp \* chunks=4 or less"),
    (lambda rank: (transformer(heads=2), text(), {"dp": 2, "pp": 1, "tp": 4}),
     "heads=2 cannot be split over 4 ranks"),
    (lambda rank: (transformer(layers=4 + (rank == 5)), text(), FITS),
     "rank 0 and rank 5 hold different models"),
    (lambda rank: (transformer(seed=int(rank == 3)), text(), FITS),
     "rank 0 and rank 3 hold different models"),
    (lambda rank: (drawn(seed=int(rank == 6)), text(), FITS),
     "rank 0 and rank 6 hold different models.*seed=0.*seed=1"),
    (lambda rank: ((drawn if rank == 2 else transformer)(), text(), FITS),
     "rank 0 and rank 2 hold different models"),
    (lambda rank: (transformer(), text(int(rank == 7)), FITS),
     "rank 0 and rank 7 hold different batches"),
    (lambda rank: (transformer(), text(), FITS | OWN), "loss=mse_loss of a Transformer needs all"),
    (lambda rank: (transformer(), text(), FITS | {"clip": 0}), "clip=0 leaves no gradient"),
    (lambda rank: (transformer(), text(), FITS | {"schedule": "pipedream"}),
     "schedule='pipedream' leaves no gradients of a whole batch"),
    (lambda rank: (transformer(), text(), FITS | {"all_reduce": "star"}),
     "all_reduce='star' is not"),
    (lambda rank: (transformer(), PADDING, FITS), "the batch weighs 0 on all ranks together"),
    (lambda rank: (nn.Linear(4, 4), ROWS, FITS | OWN), "a Linear has no stages"),
    (lambda rank: (linear(0, 1) + [None], ROWS, FITS | OWN), "the model has 3 stages and Schedule"),
    (lambda rank: (linear(0), ROWS, FITS | OWN), "rank 2 holds no values of its stage 1"),
    (lambda rank: ([nn.Linear(4, 4, bias=rank != 5) for _ in "ab"], ROWS, FITS | OWN),
     "rank 1 and rank 5 hold different models"),
    (lambda rank: (linear(0, 1), ROWS, FITS | OWN | {"sequence_parallel": True}),
     "sequence_parallel=True is for a models.Transformer"),
]  # fmt: skip


def refused(comm):
    said = []
    for make, _ in CASES:
        torch.manual_seed(0)
        model, batches, options = make(comm.rank)
        with pytest.raises(ValueError) as error:
            hybrid.train(comm, model, batches, **options)
        said.append(str(error.value))
    return said


def test_what_does_not_fit_together_is_refused_on_every_rank_in_one_sentence():
    run = dlviz.launch(refused, 8)
    for place, (_, expected) in enumerate(CASES):
        for said in [result[place] for result in run.results]:
            assert re.search(expected, said), said
            assert "\n" not in said and said.endswith("."), said
