"""What workers return comes back whole: large tensors in pieces, by every transport, with little
memory, and nothing of it stays behind."""

from __future__ import annotations

import os
import resource
import signal

import pytest
import torch

from dlviz import RankError, RunInterrupted, launch
from dlviz.cluster.parent import output, supervise
from dlviz.cluster.recording import results
from dlviz.cluster.recording.results import LARGE, PIECE

WAYS = ("memory", "files", "gloo")


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setenv("DLVIZ_TRANSPORT", request.param)
    return request.param


@pytest.fixture
def packed(monkeypatch):
    """The packed results that come, and the files that large tensors come in."""
    came, files = [], []
    unpack, read = results.unpack, results.InFile.read

    def noted(result, taken):
        came.append(result)
        return unpack(result, taken)

    def noted_read(self, pieces):
        files.append(self.path)
        for nbytes in read(self, pieces):
            assert not os.path.exists(self.path)  # it goes with its reader
            yield nbytes

    monkeypatch.setattr(supervise, "unpack", noted)
    monkeypatch.setattr(results.InFile, "read", noted_read)
    return came, files


def test_a_large_tensor_is_left_and_fetched(way, packed):
    def worker(comm):
        tensor = torch.arange(10_000_000, dtype=torch.int32) * (comm.rank + 1)
        view = torch.ones(2000, 2000)[:, ::2]
        return {"large": tensor, "same": tensor, "view": view, "small": torch.ones(2)}

    run = launch(worker, 2)
    came, files = packed
    assert [each.left for each in came] == [40_000_000] * 2
    assert max(map(len, came)) < 20e6  # bytes: of the view, not of the large one
    assert len(files) == (0 if way == "memory" else 2)
    assert not any(map(os.path.exists, files))
    for rank, result in enumerate(run.results):
        assert torch.equal(
            result["large"], torch.arange(10_000_000, dtype=torch.int32) * (rank + 1)
        )
        assert result["same"] is result["large"]
        assert result["view"].shape == (2000, 1000) and result["view"].sum() == 2e6
        assert result["small"].tolist() == [1, 1]


# Elements of 2 bytes: the last that is packed, the first that is left, and around a piece.
@pytest.mark.parametrize(
    "length",
    [
        LARGE // 2 - 1, LARGE // 2, PIECE // 2 + 1,
        pytest.param(PIECE // 2, marks=pytest.mark.sweep),
    ],
)  # fmt: skip
def test_every_length_and_type_comes_whole(way, packed, length):
    def worker(comm):
        number = torch.arange(length) % 100
        return number.to(torch.bfloat16), number.to(torch.complex64).view(-1, 1), number % 3 == 0

    ((half, pair, truth),) = launch(worker, 1).results
    number = torch.arange(length) % 100
    assert half.dtype == torch.bfloat16 and torch.equal(half, number.to(torch.bfloat16))
    assert torch.equal(pair, number.to(torch.complex64).view(-1, 1))
    assert truth.dtype == torch.bool and torch.equal(truth, number % 3 == 0)
    large = [each.nbytes for each in (half, pair, truth) if each.nbytes >= LARGE]
    assert packed[0][0].left == sum(large)


def test_a_model_that_a_rank_returns_comes_whole(way, packed):
    def worker(comm):
        torch.manual_seed(comm.rank)
        return torch.nn.Linear(1000, 1000)

    for rank, model in enumerate(launch(worker, 2).results):
        torch.manual_seed(rank)
        weight = torch.nn.Linear(1000, 1000).weight
        assert model.weight.requires_grad and torch.equal(model.weight, weight)
    assert [each.left for each in packed[0]] == [4_000_000] * 2


def peak_of(act):
    """Bytes by which this process grows at most while `act()` runs (Linux)."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")

    def highest():
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    before = highest()
    kept = act()
    return highest() - before, kept


def test_the_launching_process_holds_a_large_result_once(way):
    nbytes = 200 * 2**20
    launch(lambda comm: None, 1)
    grown, run = peak_of(lambda: launch(lambda comm: torch.ones(nbytes // 4), 1))
    assert run.results[0].nbytes == nbytes and grown < 1.2 * nbytes


# -- where files lie -------------------------------------------------------------------------------
@pytest.fixture
def files(monkeypatch):
    monkeypatch.setenv("DLVIZ_TRANSPORT", "files")


def test_what_shared_memory_has_no_room_for_goes_by_the_disk(files, packed):
    def worker(comm):
        if comm.rank:
            results.ENOUGH = 2**60  # of what is free, to be left for others
        return torch.full((LARGE,), float(comm.rank))

    run = launch(worker, 2)
    assert [each[-1].item() for each in run.results] == [0, 1]
    first, second = map(os.path.dirname, packed[1])
    assert (
        second.endswith("-files") and os.path.basename(second) == f"{os.path.basename(first)}-files"
    )
    assert not os.path.exists(first) and not os.path.exists(second)


def test_a_result_with_no_room_anywhere_is_an_error_of_its_rank_that_says_so(files):
    def worker(comm):
        if comm.rank:
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE, LARGE))
        return torch.ones(LARGE)

    with pytest.raises(
        RankError, match="a tensor of 4194304 bytes, for which there is no room"
    ) as it:
        launch(worker, 2)
    assert it.value.rank == 1 and "return less" in str(it.value)
    assert "cannot be sent back" not in str(it.value)


# -- progress --------------------------------------------------------------------------------------
def test_large_results_are_a_bar_of_bytes(way, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options):
            self.options, self.n, self.steps, self.closed = options, 0, 0, False
            bars.append(self)

        def update(self, steps):
            self.n, self.steps = self.n + steps, self.steps + 1

        def close(self):
            self.closed = True

    monkeypatch.setattr(output, "tqdm", Bar)
    launch(lambda comm: torch.ones(PIECE), 2)  # four pieces each
    (bar,) = bars
    assert (bar.options["desc"], bar.options["total"], bar.options["unit"]) == (
        "results", 8 * PIECE, "B",
    )  # fmt: skip
    assert (bar.n, bar.steps, bar.closed) == (8 * PIECE, 8, True)


def test_a_bar_of_results_takes_the_place_of_the_ranks_own(monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options):
            self.desc, self.n, self.closed = options["desc"], 0, False
            assert all(bar.closed for bar in bars)
            bars.append(self)

        def update(self, steps):
            self.n += steps

        def close(self):
            self.closed = True

    def worker(comm):
        for _ in comm.progress(range(3), "training"):
            comm.barrier()
        return torch.ones(LARGE)

    monkeypatch.setattr(output, "tqdm", Bar)
    launch(worker, 1)
    assert [(bar.desc, bar.n) for bar in bars][-1] == ("results", 4 * LARGE)
    assert all(bar.closed for bar in bars)


def test_a_function_is_told_how_many_megabytes_have_come(way):
    told = []
    launch(lambda comm: torch.ones(PIECE), 1, progress=lambda *now: told.append(now))
    told = [now for now in told if now[0] == "MB of results"]
    total = 4 * PIECE // 10**6
    assert told == [("MB of results", step * PIECE // 10**6, total) for step in range(1, 5)]


def test_who_interrupts_while_results_come_need_not_wait_for_the_rest(way):
    told = []

    def tell(name, done, total):
        if name == "MB of results":
            told.append(done)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(RunInterrupted):
        launch(lambda comm: torch.ones(PIECE), 2, progress=tell)
    assert told == [PIECE // 10**6]
