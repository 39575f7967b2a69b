"""Agreement with torch.distributed.pipelining: its action lists, its CSV, its own checks."""

from __future__ import annotations

import csv
from functools import cache
from typing import Any
from unittest import mock

import pytest

from dlviz import simulate
from dlviz.schedules import NAMES, from_csv, make

# Those of its lists that are sound: its 1F1B gives the last rank one microbatch too many.
CLASSES = {
    "interleaved": "ScheduleInterleaved1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
CHUNKS = {"zbv": (2,), "dualpipev": (2,)}


@cache
def a_stage() -> mock.NonCallableMagicMock:
    """One for all: making it takes longer than all that a test does with it."""
    from torch.distributed.pipelining.stage import PipelineStage

    return mock.create_autospec(PipelineStage, instance=True)


def torchs(name: str, ranks: int, microbatches: int, chunks: int) -> Any:
    """torch's schedule, on stages that are there in name alone."""
    from torch.distributed.pipelining import schedules as theirs  # by one process: takes seconds

    stage = a_stage()
    stage.group_rank, stage.group_size, stage.submod = 0, ranks, None
    stage.num_stages = ranks * chunks
    return getattr(theirs, name)([stage] * chunks, microbatches)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(
    "ranks", [1, 3, 4, *(pytest.param(n, marks=pytest.mark.sweep) for n in (2, 5, 8))]
)
def test_the_actions_are_torchs(name, ranks):
    compared = 0
    for microbatches in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 21):
        for chunks in CHUNKS.get(name, (2, 3, 4)):
            if ranks == 1 and name in ("interleaved", "looped_bfs"):
                chunks = 1  # more of them on one rank are refused here
            try:
                expected = torchs(CLASSES[name], ranks, microbatches, chunks).pipeline_order
            except ValueError:
                with pytest.raises(ValueError, match=f"^microbatches={microbatches} do not"):
                    make(name, ranks, microbatches, chunks)
                continue
            ours = make(name, ranks, microbatches, chunks).actions
            assert [[str(action) for action in row] for row in ours] == [
                [str(action) for action in expected[rank] if action] for rank in range(ranks)
            ]
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", CLASSES)
def test_a_csv_that_torch_wrote_is_read(name, tmp_path):
    torchs(CLASSES[name], 4, 8, 2)._dump_csv(tmp_path / "it.csv", "compute_only")
    read, made = from_csv((tmp_path / "it.csv").read_text()), make(name, 4, 8, 2)
    assert (read.actions, read.stage_rank) == (made.actions, made.stage_rank)
    read.check()


@pytest.mark.parametrize("name", sorted({*NAMES} - {"inference"}))
def test_torch_reads_our_csv_finds_no_fault_and_adds_its_messages(name, tmp_path):
    made = make(name, 4, 8)
    path = tmp_path / "it.csv"
    path.write_text(made.to_csv())
    runtime = torchs("_PipelineScheduleRuntime", 4, 8, made.chunks)
    runtime._load_csv(path)
    assert runtime.stage_index_to_group_rank == dict(enumerate(made.stage_rank))
    with path.open() as rows:
        assert [[str(action) for action in row] for row in made.actions] == [*csv.reader(rows)]
    place = made.stage_rank
    crossed = sum(one != other for one, other in zip(place, place[1:], strict=False))
    lowered = [action for row in runtime.pipeline_order_with_comms.values() for action in row]
    sends = [action for action in lowered if action.computation_type.value in ("SEND_F", "SEND_B")]
    assert len(sends) == 2 * 8 * crossed == len(simulate(made).messages)
