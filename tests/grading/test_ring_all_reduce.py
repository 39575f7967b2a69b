"""The assignment's checks: right programs get all points, each wrong one loses those it should and
gets a hint that fits."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
import ring_programs as program
import torch

from dlviz.grading import all_reduce, attempt, feedback
from dlviz.viz import decode, message_frames
from dlviz.widgets.source import sources

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "labs/assignments/source/ring_all_reduce/ring_all_reduce.ipynb"
CHECKS = ("reduce_scatter", "all_gather", "sums", "steps", "bytes", "no_hang")
EVERYTHING = set(CHECKS)


def solution():
    """The two functions as the source notebook has them."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    names = {"torch": torch, "__name__": "handed_in"}
    for cell in cells:
        if cell.cell_type == "code" and "BEGIN SOLUTION" in cell.source:
            exec(cell.source, names)
    return names["reduce_scatter"], names["all_gather"]


def failures(reduce_scatter, all_gather, checks=CHECKS):
    """Which checks fail, and with what text."""
    found = {}
    for name in checks:
        both = () if name == "reduce_scatter" else (all_gather,)
        try:
            getattr(all_reduce, f"check_{name}")(reduce_scatter, *both)
        except all_reduce.CheckFailed as failed:
            found[name] = failed
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "functions",
    [
        solution(),
        (program.scatter, program.gather),
        (program.scatter_by_sendrecv, program.gather_posted_before),
        (program.scatter_begun_elsewhere, program.gather_begun_elsewhere),
    ],
    ids=["the solution", "waits first", "sendrecv and posted receives", "another chunk first"],
)
def test_a_right_program_gets_all_points(functions, capsys):
    assert failures(*functions) == {}
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(CHECKS) and all(line.startswith("Right: ") for line in said)


@pytest.mark.slow
def test_the_solution_is_right_on_any_number_of_ranks():
    functions = solution()
    all_reduce.check_sums(*functions, ranks=[1, 6, 7, 9])
    all_reduce.check_steps(*functions, ranks=[6, 7])
    all_reduce.check_bytes(*functions, ranks=[6, 7])


WRONG = {  # functions, the checks that fail, and what each text is to say
    "off by one in the chunk": (
        (program.adds_to_the_chunk_it_sent, program.gather),
        {"reduce_scatter", "sums"},
        {
            "reduce_scatter": r"Seen: .*on 2 ranks with 6 cells, rank 0 holds chunk 0: no sum of "
            r"contributions; .*\nExpected: .*holds all 2 ranks once.*\nHint: .*which one is it "
            "added to",
            "sums": "mend reduce_scatter first",
        },
    ),
    "everyone sends before anyone receives": (
        (program.sends_before_anyone_receives, program.gather),
        EVERYTHING - {"all_gather"},
        {
            "reduce_scatter": r"deadlock: no rank can go on\n  rank 0 waits in send to rank 1 "
            r"[\s\S]*comm\.send\(chunks[\s\S]*rank 0 waits for rank 1 waits for rank 0"
            r"[\s\S]*Which call starts a send and returns at once",
            "no_hang": "nobody receives",
        },
    ),
    "everyone receives before anyone sends": (
        (program.receives_before_anyone_sends, program.gather),
        EVERYTHING - {"all_gather"},
        {"no_hang": r"waits in recv from rank[\s\S]*nobody has sent one: who has to begin"},
    ),
    "all-reduce by broadcast of everything": (
        (program.broadcasts_everything, program.nothing),
        {"steps", "bytes"},
        {
            "steps": r"on 2 ranks, 1 step\nExpected: .*2 steps",
            "bytes": r"on 3 ranks with 96 bytes each, rank 0 sent 192 bytes\nExpected: .*= 128 "
            "bytes.*\nHint: .*one chunk or more",
        },
    ),
    "forgets the last step of reduce-scatter": (
        (program.scatter_without_the_last_step, program.gather),
        {"reduce_scatter", "sums", "steps", "bytes"},
        {
            "reduce_scatter": "nothing was sent.*how often does it run on 2 ranks",
            "steps": r"on 2 ranks, 1 step\nExpected: .*2 steps[\s\S]*each of your loops",
            "bytes": "does each of the two loops take all its steps",
        },
    ),
    "forgets the last step of all-gather": (
        (program.scatter, program.gather_without_the_last_step),
        {"all_gather", "sums", "steps", "bytes"},
        {
            "all_gather": "rank 0 ends with chunk 0: rank 0; chunk 1: ranks 0, 1[\\s\\S]*How many "
            "steps",
            "sums": "does all_gather take all its steps",
        },
    ),
    "works only for powers of two": (
        (program.scatter_by_masks, program.gather_by_masks),
        {"reduce_scatter", "all_gather", "sums"},
        dict.fromkeys(
            ("reduce_scatter", "all_gather"),
            r"on 3 ranks[\s\S]*on 2 and on 4 ranks. What in it holds for powers of two alone",
        ),
    ),
    "a butterfly": (
        (program.exchanges_across, program.nothing),
        EVERYTHING,
        {"reduce_scatter": "on 3 ranks[\\s\\S]*powers of two", "bytes": "on 3 ranks"},
    ),
    "writes into a tensor that is still being sent": (
        (program.writes_into_what_it_sends, program.gather),
        {"no_hang"},
        {
            "no_hang": r"on 2 ranks, rank 0 wrote into a tensor that was still being sent; the send"
            r" began at .*: sending = comm.isend\(passing.*right\)\nExpected: wait\(\) is called .*"
            r"left alone\nHint: .*What may not happen to the tensor meanwhile",
        },
    ),
    "never waits for its sends": (
        (program.never_waits, program.gather),
        {"no_hang"},
        {"no_hang": r"never waited for the send at .*comm\.isend\(chunks.*\nExpected: wait\(\) is"},
    ),
    "reads what has not arrived": (
        (program.reads_before_it_has_arrived, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "messages arrive, but no cell has changed"},
    ),
    "sends twice the bytes": (
        (program.sends_twice, program.gather_twice),
        {"bytes"},
        {
            "bytes": r"on 2 ranks with 64 bytes each, rank 0 sent 128 bytes\nExpected: .*= 64 bytes"
            " from every rank\nHint: .*one chunk or more, and does it go out once",
        },
    ),
    "right sum but through one rank": (
        (program.sums_on_rank_0, program.spreads_from_rank_0),
        {"reduce_scatter", "all_gather", "steps", "bytes"},
        {
            "reduce_scatter": "rank 1 holds chunk 0: rank 1; .*\n.*\nHint: .*rank 0 holds whole "
            "chunks and others hold none",
            "steps": "on 3 ranks, rank 0 sent to rank 2[\\s\\S]*a rank knows two others",
            "bytes": r"rank 0 sent 192 bytes[\s\S]*rank 0 sends most, rank 1 least",
        },
    ),
    "everybody exchanges with everybody": (
        (program.scatters_directly, program.gathers_directly),
        {"steps"},
        {"steps": "on 3 ranks, rank 0 sent to rank 2\n.*to its right neighbour, rank 1\n"},
    ),
    "even ranks send while odd ones receive": (
        (program.takes_turns, program.gather),
        {"steps"},
        {"steps": "on 2 ranks, 3 steps[\\s\\S]*some rank sends only after it has received"},
    ),
    "the backend's own collective": (
        (program.scatter_by_the_backend, program.nothing),
        {"steps", "bytes", "no_hang"},
        {"steps": "the backend's own collective did the work[\\s\\S]*and no collective"},
    ),
    "adds out of place": (
        (program.scatter_out_of_place, program.gather_out_of_place),
        {"reduce_scatter", "all_gather", "sums"},
        {
            "reduce_scatter": "an assignment puts another tensor into the list",
            "all_gather": "an assignment puts another tensor into the list",
        },
    ),
    "copies where it should add": (
        (program.copies_in_reduce_scatter, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "own share of a chunk is gone"},
    ),
    "adds where it should copy": (
        (program.scatter, program.adds_in_all_gather),
        {"all_gather", "sums"},
        {"all_gather": r"chunk 0: ranks 0 ×2, 1[\s\S]*is it added or copied", "sums": "all_gather"},
    ),
    "the last rank has no neighbour": (
        (program.forgets_that_the_ring_is_closed, program.nothing),
        EVERYTHING,
        {
            "reduce_scatter": r"rank 1 raised ValueError: dst=2 is no rank.*, at "
            r"ring_programs.py:\d+: comm.isend.*\nExpected: every rank returns from "
            r"forgets_that_the_ring_is_closed\nHint: .*"
            "the ring is closed",
        },
    ),
    "no chunk follows the last one": (
        (program.counts_one_chunk_too_far, program.nothing),
        EVERYTHING,
        {"bytes": r"rank 1 raised IndexError: [\s\S]*which chunk follows the last one"},
    ),
    "a message is left over": (
        (program.scatter, program.sends_more_than_is_received),
        {"steps", "bytes", "no_hang"},
        {"no_hang": "rank . sent rank . a message that it never received"},
    ),
    "some ranks stay away": (
        (program.only_some_go_on, program.gather),
        EVERYTHING - {"all_gather"},
        {"no_hang": "rank 0 finished and|message mismatch|do all take the same number|match"},
    ),
    "nothing at all": (
        (program.nothing, program.nothing),
        EVERYTHING,
        {
            "reduce_scatter": "nothing was sent. What does rank 0 do in the first step",
            "no_hang": "no message was sent",
        },
    ),
    "not written": (
        (program.not_written, program.not_written),
        EVERYTHING,
        {name: "rank . raised NotImplementedError.*\n.*\nHint: .*still to be" for name in CHECKS},
    ),
    "a rank that ends its process": (
        (program.leaves, program.gather),
        EVERYTHING - {"all_gather"},
        {"reduce_scatter": "rank 1 exited with code 3[\\s\\S]*ended its process"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_loses_the_points_it_should_and_gets_a_hint_that_fits(name):
    functions, expected, words = WRONG[name]
    found = failures(*functions)
    assert set(found) == expected, {check: str(failed) for check, failed in found.items()}
    for check, pattern in words.items():
        text = str(found[check])
        assert re.search(pattern, text), text
    for failed in found.values():
        assert failed.seen and failed.expected and failed.hint
        assert len(str(failed).splitlines()) <= 12


@pytest.mark.slow
def test_a_loop_that_never_ends_is_told_when_the_time_is_up(monkeypatch):
    monkeypatch.setattr(attempt, "TIMEOUT", 2.0)
    with pytest.raises(all_reduce.CheckFailed) as caught:
        all_reduce.check_bytes(program.never_ends, program.gather)
    text = str(caught.value)
    assert "took longer than timeout=2 s" in text and "ring_programs.py" in text
    assert "does the loop at that line ever end?" in text and len(text.splitlines()) < 8


@pytest.mark.slow
def test_a_rehearsal_shows_the_students_own_program_to_where_it_came():
    done = all_reduce.rehearse(program.scatter, program.gather, ranks=4)
    assert repr(done) == "24 messages; every rank of 4 returned"
    frames = message_frames(done.trace)
    assert [len(frame.messages) for frame in frames] == [0] + 6 * [4]
    counts = [decode(done.trace.buffers[frames[-1].snapshots[r]]["array"], 4) for r in range(4)]
    assert all((each == 1).all() for each in counts)
    assert [own["label"] for own in sources(done.trace).values()] == ["ring_programs.py"]

    stuck = all_reduce.rehearse(program.sends_before_anyone_receives)
    assert len(stuck.trace.messages) == 4
    assert repr(stuck).startswith("4 messages; deadlock: no rank can go on\n  rank 0 waits in send")
    assert "Which call starts a send and returns at once?" in " ".join(repr(stuck).split())
    assert max(map(len, repr(stuck).splitlines())) <= feedback.WIDTH

    empty = all_reduce.rehearse(program.not_written)
    assert len(empty.trace.messages) == 0 and "still to be written" in repr(empty)


def test_a_check_that_fails_shows_its_message_and_no_line_of_its_own():
    failed = all_reduce.CheckFailed("this", "that", "look again " * 12)
    head, seen, expected, *hint = failed._render_traceback_()
    assert (head, seen, expected) == ("Not yet.", "Seen:     this", "Expected: that")
    assert hint[0].startswith("Hint:     look") and hint[1].startswith(" " * 10 + "look")
