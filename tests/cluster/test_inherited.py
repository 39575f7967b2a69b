"""What ranks take over from the launching process: seeds, defaults, logging, warnings."""

from __future__ import annotations

import logging
import multiprocessing
import random
import warnings
from importlib import import_module

import numpy as np
import pytest
import torch

import dlviz


def drawn(comm):
    return torch.rand(2).tolist(), np.random.rand(2).tolist(), random.random()


def test_a_seed_decides_what_all_ranks_draw_and_is_in_the_trace():
    one, again = (dlviz.launch(drawn, ranks=2, seed=7) for _ in range(2))
    assert one.results == again.results and one.results[0] == one.results[1]
    assert one.trace.meta["seed"] == 7
    other = dlviz.launch(drawn, ranks=2, seed=8).results[0]
    assert all(mine != theirs for mine, theirs in zip(one.results[0], other, strict=True))
    torch.manual_seed(7)
    assert one.results[0][0] == torch.rand(2).tolist()


def test_by_rank_each_rank_begins_with_the_seed_and_its_number():
    first, second = dlviz.launch(drawn, ranks=2, seed=7, seed_by_rank=True).results
    assert [first] == dlviz.launch(drawn, ranks=1, seed=7).results
    assert [second] == dlviz.launch(drawn, ranks=1, seed=8).results


def test_without_one_the_generator_of_the_launching_process_decides():
    runs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        runs.append([dlviz.launch(drawn, ranks=1).results for _ in range(2)])
    assert runs[0] == runs[1] and runs[0] != runs[2]
    assert runs[0][0] != runs[0][1], "each launch draws a seed of its own"


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", 2**63])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ValueError, match=r"^seed=.* has to be a whole number from 0 to 2\*\*63"):
        dlviz.launch(drawn, ranks=1, seed=seed)


@pytest.fixture
def settings():
    """The launching process with settings of its own, put back afterwards."""
    before = np.get_printoptions()
    own = logging.getLogger("dlviz.tests.inherited")
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    torch.set_printoptions(precision=2)
    np.set_printoptions(precision=3)
    own.setLevel(logging.DEBUG)
    yield
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False
    torch.set_printoptions(profile="default")
    np.set_printoptions(**before)
    own.setLevel(logging.NOTSET)


def test_defaults_formats_and_levels_of_logging_are_those_of_the_launching_process(settings):
    def found(comm):
        return (
            torch.zeros(1).dtype,
            torch.are_deterministic_algorithms_enabled(),
            import_module("torch.backends.cudnn").benchmark,
            str(torch.tensor([1 / 3])),
            str(np.array([1 / 3])),
            logging.getLogger("dlviz.tests.inherited").level,
        )

    expected = torch.float64, True, True, "tensor([0.33])", "[0.333]", logging.DEBUG
    assert dlviz.launch(found, ranks=2).results == [expected] * 2


def test_handlers_of_logging_to_stderr_write_into_the_ranks_output(monkeypatch):
    import sys

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s at a rank: %(message)s"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)

    def worker(comm):
        logging.info("step %d", comm.rank)
        logging.debug("not shown")

    assert dlviz.launch(worker, ranks=2).output == [
        "INFO at a rank: step 0\n",
        "INFO at a rank: step 1\n",
    ]


def test_filters_of_warnings_are_those_of_the_launching_process():
    def worker(comm):
        warnings.warn("spoilt", FutureWarning, stacklevel=1)
        return "passed"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        assert dlviz.launch(worker, ranks=1).results == ["passed"]
        warnings.simplefilter("error", FutureWarning)
        with pytest.raises(dlviz.RankError, match="FutureWarning: spoilt"):
            dlviz.launch(worker, ranks=1)


def test_processes_that_a_rank_starts_begin_as_in_the_launching_process():
    """A DataLoader's workers, say, which a server of their own would take seconds to start."""
    here = multiprocessing.get_start_method(allow_none=True)
    run = dlviz.launch(lambda comm: multiprocessing.get_start_method(allow_none=True), 2)
    assert run.results == [here, here]
