"""The ring's checks: right programs get all points, each wrong one loses those it should and gets a
hint that fits."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest
import ring_programs as program
import torch
from judging import judged

from dlviz.grading.assignments.ring_all_reduce import checks as ring_checks
from dlviz.grading.assignments.ring_all_reduce.run import attempt, contributions
from dlviz.grading.harness import feedback
from dlviz.grading.harness import sandbox as alone
from dlviz.grading.harness.feedback import CheckFailed
from dlviz.viz import decode, message_frames
from dlviz.widgets.source import sources

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "assignments/source/ring_all_reduce/ring_all_reduce.ipynb"
CHECKS = ("reduce_scatter", "all_gather", "sums", "rounds", "bytes", "no_hang")
EVERYTHING = set(CHECKS)
SIZES = (2,)  # as a rule two ranks show what is wrong


@cache
def left(n, cells, functions, scattered, late):
    """What these functions leave, or the CheckFailed that they end with."""
    try:
        return attempt(n, cells, functions, scattered, late)
    except CheckFailed as failed:
        return failed


@pytest.fixture(autouse=True)
def same_run(monkeypatch):
    """Checks that run the same functions at the same size judge one and the same run of them."""

    def attempt_once(n, cells, functions, scattered=False, late=False):
        found = left(n, cells, tuple(functions), scattered, late)
        if isinstance(found, CheckFailed):
            raise found
        return found

    monkeypatch.setattr(ring_checks, "attempt", attempt_once)


def solution():
    """The two functions as the source notebook has them."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    names = {"torch": torch, "__name__": "handed_in"}
    for cell in cells:
        if cell.cell_type == "code" and "BEGIN SOLUTION" in cell.source:
            exec(cell.source, names)
    return names["reduce_scatter"], names["all_gather"]


def given(name, functions):
    """A check, and those of the two functions that it takes."""
    check = getattr(ring_checks, f"check_{name}")
    return check, functions[: 1 if name == "reduce_scatter" else 2]


def grade(name, functions, sizes=()):
    check, programs = given(name, functions)
    return check.grade(*programs, sizes=sizes)


RIGHT = {
    "the solution": solution(),
    "waits first": (program.scatter, program.gather),
    "sendrecv and posted receives": (program.scatter_by_sendrecv, program.gather_posted_before),
    "another chunk first": (program.scatter_begun_elsewhere, program.gather_begun_elsewhere),
}


@pytest.mark.slow
def test_the_solution_gets_all_points(capsys):
    functions = solution()
    for name in CHECKS:
        check = getattr(ring_checks, f"check_{name}")
        sizes = () if name == "rounds" else (3,)  # the others at all sizes: `make sweep`
        programs = functions[: 1 if name == "reduce_scatter" else 2]
        assert check(*programs, sizes=sizes) == check.points == 3
    said = capsys.readouterr().out
    assert said.count("Right, 3 of 3 points: ") == len(CHECKS)
    assert "on 1, 2, 3, 4 and 5 ranks" in " ".join(said.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "checks"),
    [*zip([*RIGHT][1:], (CHECKS[:2], CHECKS[2:4], CHECKS[4:]), strict=True)],
)
def test_a_right_program_of_another_kind_gets_all_points(name, checks):
    for check in checks:
        report = grade(check, RIGHT[name], (3, 1))
        assert report.failure is None and report.points == 3, str(report)


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("check", CHECKS)
def test_a_right_program_is_right_at_every_size(name, check):
    report = grade(check, RIGHT[name], range(1, 10))
    assert report.failure is None and report.points == 3, str(report)


WRONG = {  # functions, the checks that give less than all points, and what is said of it
    "off by one in the chunk": (
        (program.adds_to_the_chunk_it_sent, program.gather),
        {"reduce_scatter", "sums"},
        {
            "reduce_scatter": r"Seen: .*on 2 ranks with 6 cells, rank 0 holds chunk 0: no sum of "
            r"contributions; .* Expected: .*holds all 2 ranks once.* Hint: .*was another chunk "
            "added to theirs, or a number changed on its way.*which one is it added to",
            "sums": "mend reduce_scatter first",
        },
    ),
    "everyone sends before anyone receives": (
        (program.sends_before_anyone_receives, program.gather),
        EVERYTHING - {"all_gather"},
        {
            "reduce_scatter": r"deadlock: no rank can go on rank 0 waits in send to rank 1 "
            r".* at ring_programs.py:\d+: comm\.send\(chunks.*rank 0 waits for rank 1 waits for "
            "rank 0.*Which call starts a send and returns at once",
            "all_gather": "Right, 3 of 3 points: .* This began with what a right reduce_scatter "
            "leaves, since yours is not right yet: on 2 ranks with 6 cells, deadlock",
        },
    ),
    "everyone receives before anyone sends": (
        (program.receives_before_anyone_sends, program.gather),
        EVERYTHING - {"all_gather"},
        {"no_hang": r"waits in recv from rank.*nobody has sent one: who has to begin"},
    ),
    "all-reduce by broadcast of everything": (
        (program.broadcasts_everything, program.nothing),
        {"rounds", "bytes"},
        {
            "rounds": r"on 2 ranks, 1 round Expected: .*2 rounds.*rank 0 sends 1 message in "
            "broadcasts_everything and 0 messages in nothing",
            "bytes": r"on 3 ranks with 96 bytes each, rank 0 sent 192 bytes Expected: .*= 128 "
            "bytes.* Hint: .*a message carries 96 bytes and a chunk has 32",
        },
    ),
    "forgets the last round of reduce-scatter": (
        (program.scatter_without_the_last_step, program.gather),
        {"reduce_scatter", "sums", "rounds", "bytes"},
        {
            "reduce_scatter": "nothing was sent.*how often does it run on 2 ranks",
            "rounds": r"on 2 ranks, 1 round Expected: .*2 rounds.*past every other rank once",
            "bytes": "some messages are missing. On 2 ranks, rank 0 sends 0 messages in",
        },
    ),
    "forgets the last round of all-gather": (
        (program.scatter, program.gather_without_the_last_step),
        {"all_gather", "sums", "rounds", "bytes"},
        {
            "all_gather": "rank 0 ends with chunk 0: rank 0; chunk 1: ranks 0, 1.*nothing was"
            " sent in all_gather.*how often does it run on 2 ranks",
            "sums": "does all_gather take all its rounds",
        },
    ),
    "works only for powers of two": (
        (program.scatter_by_masks, program.gather_by_masks),
        {"reduce_scatter", "all_gather", "sums"},
        {
            "reduce_scatter": "1.75 of 3 points: right on 1, 2 and 4 ranks.*on 3 ranks.*on 2 and "
            "on 4 ranks. What in it holds for even numbers or powers of two alone",
        },
    ),
    "a butterfly": (
        (program.exchanges_across, program.nothing),
        EVERYTHING,
        {"reduce_scatter": "on 3 ranks", "bytes": "on 3 ranks"},
    ),
    "writes into a tensor that is still being sent": (
        (program.writes_into_what_it_sends, program.gather),
        {"no_hang"},
        {
            "no_hang": r"on 2 ranks, rank 0 wrote into a tensor that was still being sent; the send"
            r" began at .*: sending = comm.isend\(passing.*right\) Expected: wait\(\) is called .*"
            r"left alone Hint: .*What may not happen to the tensor meanwhile",
        },
    ),
    "never waits for its sends": (
        (program.never_waits, program.gather),
        {"no_hang"},
        {"no_hang": r"never waited for the send at .*comm\.isend\(chunks.* Expected: wait\(\) is"},
    ),
    "reads what has not arrived": (
        (program.reads_before_it_has_arrived, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "from a tensor whose message had not come yet. Which call returns whe"},
    ),
    "adds before it has come": (
        (program.adds_before_it_has_come, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "from a tensor whose message had not come yet. Which call returns whe"},
    ),
    "never waits for its receives": (
        (program.never_asks_whether_it_came, program.gather),
        {"reduce_scatter", "sums", "rounds", "no_hang"},
        {
            check: r"rank 0 never waited for the receive at .*comm\.irecv.* A message is"
            r" in its tensor when wait\(\) of its request has returned"
            for check in ("reduce_scatter", "rounds", "no_hang")
        },
    ),
    "sends twice the bytes": (
        (program.sends_twice, program.gather_twice),
        {"bytes"},
        {
            "bytes": r"on 2 ranks with 64 bytes each, rank 0 sent 128 bytes Expected: .*= 64 bytes"
            " from every rank Hint: .*a message carries 64 bytes and a chunk has 32",
        },
    ),
    "right sum but through one rank": (
        (program.sums_on_rank_0, program.spreads_from_rank_0),
        {"reduce_scatter", "all_gather", "rounds", "bytes"},
        {
            "reduce_scatter": "rank 1 holds chunk 0: rank 1; .* Hint: .*rank 0 holds whole "
            "chunks and others hold none",
            "rounds": "on 3 ranks, rank 0 sent to rank 2.*a rank knows two others",
            "bytes": r"rank 0 sent 192 bytes.*rank 0 sends most, rank 1 least",
        },
    ),
    "everybody exchanges with everybody": (
        (program.scatters_directly, program.gathers_directly),
        {"rounds"},
        {"rounds": "on 3 ranks, rank 0 sent to rank 2 .*to its right neighbour, rank 1 "},
    ),
    "even ranks send while odd ones receive": (
        (program.takes_turns, program.gather),
        {"rounds"},
        {"rounds": "on 2 ranks, 3 rounds.*some rank sends only after it has received"},
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
        {"all_gather": r"chunk 0: ranks 0 ×2, 1.*is it added or copied", "sums": "all_gather"},
    ),
    "the last rank has no neighbour": (
        (program.forgets_that_the_ring_is_closed, program.nothing),
        EVERYTHING,
        {
            "reduce_scatter": r"rank 1 raised ValueError: dst=2 is no rank.*, at "
            r"ring_programs.py:\d+: comm.isend.* Expected: every rank returns from "
            "forgets_that_the_ring_is_closed Hint: .*the ring is closed",
        },
    ),
    "no chunk follows the last one": (
        (program.counts_one_chunk_too_far, program.nothing),
        EVERYTHING,
        {"bytes": r"rank 1 raised IndexError: .*which chunk follows the last one"},
    ),
    "a message is left over": (
        (program.scatter, program.sends_more_than_is_received),
        {"all_gather", "sums", "rounds", "bytes", "no_hang"},
        {"no_hang": "on 2 ranks, rank . sent rank . a message that it never received.*rank 0 sen"},
    ),
    "some ranks stay away": (
        (program.only_some_go_on, program.gather),
        EVERYTHING - {"all_gather"},
        {"no_hang": "rank 0 finished and|message mismatch|do all|match"},
    ),
    "nothing at all": (
        (program.nothing, program.nothing),
        EVERYTHING,
        {
            "reduce_scatter": "0 of 3 points.*nothing was sent. What does rank 0 do in the first r",
            "no_hang": "no message was sent",
        },
    ),
    "not written": (
        (program.not_written, program.not_written),
        EVERYTHING,
        {"sums": "rank 0 raised NotImplementedError.*still to be written, in place of its raise"},
    ),
    "a rank that ends its process": (
        (program.leaves, program.gather),
        EVERYTHING - {"all_gather"},
        {"reduce_scatter": "rank 1 exited with code 3.*ended its process"},
    ),
    "sums in whole numbers": (
        (program.sums_in_integers, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "no sum of contributions.*have lost their fractions"},
    ),
    "sums in float32": (
        (program.rounds_to_float32, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "no sum of contributions.*have lost digits: they were in another type"},
    ),
    "one rank alone was forgotten": (
        (program.one_rank_forgotten, program.gather),
        EVERYTHING - {"all_gather"},
        {
            "sums": "2 of 3 points: right on 2 and 3 ranks. Seen: .*on 1 rank with 3 cells, rank 0 "
            "raised ValueError.*is this rank itself.*how often does your loop run then",
        },
    ),
    "a buffer of float32": (
        (program.float32_buffer, program.gather),
        EVERYTHING - {"all_gather"},
        {"reduce_scatter": "the cells are float64, and one end of the message has float32"},
    ),
    "the mean": (
        (program.mean_as_in_ddp, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "no sum of contributions.*some cells hold 1/2 of the sum"},
    ),
    "receives from the right": (
        (program.receives_from_the_right, program.gather),
        EVERYTHING - {"all_gather"},
        {
            "reduce_scatter": "messages are under way that nobody receives: rank \\d has sent one "
            "to rank \\d, which waits for one from rank \\d.*From which neighbour",
        },
    ),
    "takes the chunks off the list": (
        (program.takes_chunks_off_the_list, program.gather),
        EVERYTHING - {"reduce_scatter", "all_gather"},
        {
            "reduce_scatter": "^Right",
            "sums": "takes_chunks_off_the_list leaves a list that no longer holds the 2 chunks",
        },
    ),
    "yields its steps": (
        (program.yields_its_steps, program.gather),
        EVERYTHING - {"all_gather"},
        {"reduce_scatter": "yields_its_steps returned a generator.* what a `yield` in a function"},
    ),
    "all sends at once": (
        (program.all_sends_at_once, program.gather),
        {"reduce_scatter", "sums", "no_hang", "rounds"},
        {"reduce_scatter": "each rank starts all its sends before the first message has come"},
    ),
    "all-gather starts with the rank's own number": (
        (program.scatter, program.gather_starts_with_own_number),
        {"all_gather", "sums"},
        {
            "all_gather": "the first message that rank 0 sends in all_gather is no whole chunk",
        },
    ),
    "a buffer as long as chunk 0": (
        (program.buffer_as_long_as_chunk_0, program.gather),
        {"sums"},
        {"sums": "message mismatch.*chunks may differ by a cell. Which chunk arrives"},
    ),
    "skips empty chunks": (
        (program.sender_skips_empty_chunks, program.gather),
        {"sums"},
        {"sums": "with 2 cells, .*some chunks are empty here.*A message may be empty too"},
    ),
    "the names of MPI": (
        (program.mpi_habits, program.gather),
        EVERYTHING - {"all_gather"},
        {"bytes": "rank 0 raised AttributeError.*Get_rank.*the table above the function lists"},
    ),
    "round to the left": (
        (program.round_to_the_left, program.gather_to_the_left),
        {"rounds"},
        {"rounds": "rank 0 sent to rank 2.*go round the other way. Which number has the neighbour"},
    ),
    "one half to the left": (
        (program.round_to_the_left, program.gather_begun_elsewhere),
        {"all_gather", "sums", "rounds"},
        {"rounds": "rank 0 sent to rank 2.*round_to_the_left goes round the other way"},
    ),
    "one lap more in all-gather": (
        (program.scatter, program.gather_one_lap_more),
        {"all_gather", "sums", "no_hang", "rounds", "bytes"},
        {
            "rounds": "on 2 ranks, 3 rounds.*rank 0 sends 1 message in scatter and 2 messages in "
            "gather_one_lap_more",
            "bytes": "some messages are needless. On 2 ranks",
        },
    ),
    "one round more in reduce-scatter": (
        (program.extra_step_scatter, program.gather),
        {"reduce_scatter", "sums", "no_hang", "rounds", "bytes"},
        {"rounds": "on 2 ranks, 3 rounds.*rank 0 sends 2 messages in extra_step_scatter and 1"},
    ),
    "acknowledges each chunk": (
        (program.acknowledges_each_chunk, program.gather),
        {"rounds", "bytes"},
        {"rounds": "rank 0 sent to rank 2.*what does a rank tell its left neighbour"},
    ),
    "the whole tensor goes round": (
        (program.whole_tensor_round, program.nothing),
        {"rounds", "bytes"},
        {"bytes": "on 3 ranks.*a message carries 96 bytes and a chunk has 32"},
    ),
    "arguments swapped": (
        (program.arguments_swapped, program.gather),
        EVERYTHING - {"all_gather"},
        {"sums": "rank 0 raised TypeError: isend.*Hint: .*the first argument is one torch tensor"},
    ),
    "the backend's own collective": (
        (program.scatter_by_the_backend, program.nothing),
        EVERYTHING,
        {"rounds": r"ready-made code was called: comm.all_reduce, ring_programs.py:\d+: "},
    ),
    "all-gather by broadcast": (
        (program.scatter, program.gather_by_broadcast),
        EVERYTHING - {"reduce_scatter"},
        {"rounds": "ready-made code was called: comm.broadcast, .*which messages does it send"},
    ),
    "PyTorch's own collective": (
        (program.scatter_by_torch, program.gather),
        EVERYTHING - {"all_gather"},
        {"sums": r"ready-made code was called: torch.distributed.all_reduce, ring_programs.py:"},
    ),
    "an error that nobody sees": (
        (program.hides_its_errors, program.gather),
        EVERYTHING - {"all_gather"},
        {
            "reduce_scatter": r"on 2 ranks with 6 cells, rank 0 met ValueError: src=-1 is no rank"
            r" of .*: use 0 to 1, at ring_programs.py:\d+: comm.recv.*, and went on .* an `except`",
        },
    ),
    "the first rank has no neighbour on its left": (
        (program.first_has_no_left_neighbour, program.gather),
        EVERYTHING - {"all_gather"},
        {"rounds": "src=-1 is no rank.*the ring is closed: who is the left neighbour of rank 0"},
    ),
    "counts the other way round": (
        (program.counts_the_other_way, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "which chunk does a rank pass on after its first round"},
    ),
    "sends its own share each time": (
        (program.sends_its_own_each_time, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "which chunk does a rank pass on after its first round"},
    ),
    "the mean in the end": (
        (program.scatter, program.gathers_the_mean),
        {"all_gather", "sums"},
        {check: "some cells hold 1/2 of the sum" for check in ("all_gather", "sums")},
    ),
    "neither is right, the second not begun": (
        (program.copies_in_reduce_scatter, program.nothing),
        EVERYTHING - {"no_hang"},
        {"all_gather": "from what a right reduce_scatter leaves.*nothing was sent in all_gather"},
    ),
    "neither is right, the second too short": (
        (program.copies_in_reduce_scatter, program.gather_without_the_last_step),
        EVERYTHING - {"no_hang"},
        {"all_gather": "from what a right .*whole chunks have not come to all ranks. How many rou"},
    ),
    "a barrier in every round": (
        (program.waits_at_a_barrier, program.gather),
        EVERYTHING - {"all_gather"},
        {"bytes": "ready-made code was called: comm.barrier.*a ring needs no barrier"},
    ),
    "dlviz's own ring": (
        (program.scatter_of_the_library, program.gather_of_the_library),
        EVERYTHING,
        {"sums": r"ready-made code .*dlviz.collectives.ring, ring_programs.py:\d+: ring.reduce_sc"},
    ),
    "what dlviz's ring is made of": (
        (program.library_below_the_call, program.gather),
        EVERYTHING - {"all_gather"},
        {"no_hang": r"ready-made code .*dlviz.collectives.ring, ring_programs.py:\d+: once_round"},
    ),
    "a collective, and messages for show": (
        (program.all_reduces_and_pretends, program.nothing),
        EVERYTHING,
        {"bytes": "ready-made code was called: comm.all_reduce"},
    ),
    "numbers known in advance, and messages for show": (
        (program.works_the_sum_out_alone, program.gather),
        {"reduce_scatter", "sums"},
        {"reduce_scatter": "no sum of contributions"},
    ),
    "starts read from the checker's frames": (
        (program.reads_the_checkers_frame, program.pretends),
        EVERYTHING,
        {"reduce_scatter": "ready-made code was called: f_back"},
    ),
    "a guard that was blinded": (
        (program.blinds_the_guard, program.gather),
        {"no_hang"},
        {"no_hang": "rank 0 never waited for the send"},
    ),
    "a judge that was changed": (
        (program.changes_the_judge, program.nothing),
        EVERYTHING,
        {"reduce_scatter": "nothing was sent", "rounds": "no message was sent"},
    ),
}
SHOWN = {  # where two ranks do not show it
    "works only for powers of two": ring_checks.RANKS,
    "one rank alone was forgotten": (2, 3, 1),
    "all-reduce by broadcast of everything": (2, 3),
    "right sum but through one rank": (2, 3),
    "a butterfly": (3,),
    "everybody exchanges with everybody": (3,),
    "receives from the right": (3,),
    "round to the left": (3,),
    "one half to the left": (3,),
    "counts the other way round": (3,),
    "sends its own share each time": (3,),
    "neither is right, the second too short": (3,),
    "acknowledges each chunk": (3,),
    "the whole tensor goes round": (3,),
    "skips empty chunks": (3,),
    "all sends at once": (3,),
}
# In `make test` each is held to the first check that is to tell of it, to those that judge the same
# run, and to what no other program is told.
TOLD_BESIDES = {
    ("off by one in the chunk", "sums"),
    ("everyone sends before anyone receives", "all_gather"),
    ("all-reduce by broadcast of everything", "bytes"),
    ("forgets the last round of reduce-scatter", "bytes"),
    ("forgets the last round of reduce-scatter", "rounds"),
    ("forgets the last round of all-gather", "sums"),
    ("one lap more in all-gather", "bytes"),
    ("right sum but through one rank", "bytes"),
    ("right sum but through one rank", "rounds"),
    ("takes the chunks off the list", "sums"),
    ("nothing at all", "no_hang"),
}


PAIRS = [
    pytest.param(
        name, check, marks=() if not i or (name, check) in TOLD_BESIDES else pytest.mark.sweep
    )
    for name, (_, _, words) in WRONG.items()
    for i, check in enumerate(words)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "check"), PAIRS)
def test_a_wrong_program_is_told_what_fits(name, check):
    functions, lost, words = WRONG[name]
    sizes = SHOWN.get(name, SIZES)
    if functions[0] is program.changes_the_judge:
        report = grade(check, functions, sizes)
    else:
        report = judged(*given(check, functions), sizes)
    said = " ".join(str(report).split())
    assert re.search(words[check], said), said
    assert (report.failure is not None) == (check in lost)
    if report.failure is not None:
        assert report.failure.seen and report.failure.expected and report.failure.hint
        assert len(str(report).splitlines()) <= 16
    assert max(map(len, str(report).splitlines())) <= feedback.WIDTH


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_loses_the_points_it_should(name):
    functions, lost, _ = WRONG[name]
    reports = {check: grade(check, functions) for check in CHECKS}
    told = {check: str(report) for check, report in reports.items()}
    assert {check for check, report in reports.items() if report.points < 3} == lost, told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("functions", "check", "sizes", "points"),
    [
        ((program.not_on_two_ranks, program.gather), "reduce_scatter", (), 2.25),  # 4 of 5 sizes
        ((program.four_ranks_only, program.gather), "reduce_scatter", (), 0.5),  # 4 alone
        # right on one rank, as anything is
        ((program.nothing, program.nothing), "sums", (2, 1), 0),
        ((program.scatter, program.nothing), "reduce_scatter", (3,), 3),
        ((program.scatter_by_the_backend, program.nothing), "sums", (2, 1), 0),
    ],
)
def test_each_number_of_ranks_has_its_share_of_the_points(functions, check, sizes, points):
    assert grade(check, functions, sizes).points == points


@pytest.mark.slow
def test_a_run_that_never_ends_is_told_when_the_time_is_up_and_not_tried_on_more_ranks(monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 1.0)
    monkeypatch.setattr(alone.os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    report = grade("bytes", (program.never_ends, program.gather))
    assert "the run had not ended after 1 s" in str(report) and "ring_programs.py:" in str(report)
    assert "which loop around that line goes on for ever" in " ".join(str(report).split())
    assert len(report.failed) == 1 and report.points == 0
    asleep = grade("no_hang", (program.sleeps, program.gather))
    assert re.search(r"ring_programs.py:\d+: time.sleep\(60\)", str(asleep))
    rescued = grade("all_gather", (program.never_ends, program.gather), (2,))
    assert rescued.points == 3 and "the run had not ended after 1 s" in str(rescued)


@pytest.mark.slow
def test_a_program_that_grows_is_ended_by_half_a_gigabyte():
    report = grade("bytes", (program.grows, program.gather), (2,))
    assert re.search("can't allocate memory|MemoryError", str(report)), str(report)
    assert "something grows without end" in str(report)


def test_whose_numbers_a_cell_holds_is_read_from_fractions():
    starts = np.random.default_rng(0).uniform(1.0, 9.0, (5, 200))
    counts = np.random.default_rng(1).integers(0, 3, (200, 5))
    values = (counts * starts.T).sum(axis=1)
    assert (contributions(values, starts) == counts).all()
    assert (contributions(values * (1 + 1e-9), starts) == -1).all()
    assert (contributions(np.full(200, np.nan), starts) == -1).all()


@pytest.mark.slow
def test_no_rank_is_given_what_another_began_with():
    seen = attempt(3, 6, [program.nothing, program.nothing])
    starts = [own.start for own in seen.left]
    again = attempt(3, 6, [program.nothing, program.nothing])
    assert len({tuple(start) for start in [*starts, *(own.start for own in again.left)]}) == 6
    assert (starts[0] != np.round(starts[0])).all() and starts[0].dtype == np.float64


@pytest.mark.slow
def test_the_wrong_reduce_scatter_goes_wrong_in_the_round_that_its_answer_names():
    run = ring_checks.rehearse_broken()
    assert repr(run) == "12 messages; every rank returned; 0 of 4 ranks hold a whole chunk"
    assert sources(run.trace) == {}, "the picture alone tells"
    held = [
        np.array([decode(run.trace.buffers[each.snapshots[r]]["array"], 4) for r in range(4)])
        for each in message_frames(run.trace)
    ]  # by round: (rank, cell, contributions)
    assert [counts.max() for counts in held] == [1, 1, 2, 3]
    assert (held[2][1, :3] == [2, 1, 0, 0]).all(), "rank 1's chunk 0 holds rank 0 twice"
    texts = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells]
    (answer,) = [text for text in texts if "In which round?</summary>" in text]
    assert "</summary>In round 2, on rank 1: it adds the number of rank 0 a second time" in answer


@pytest.mark.slow
def test_a_rehearsal_shows_the_students_own_program_to_where_it_came():
    done = ring_checks.rehearse(program.scatter, program.gather, ranks=4)
    assert repr(done) == "24 messages; every rank returned; 4 of 4 ranks hold all chunks whole"
    assert done.right
    frames = message_frames(done.trace)
    assert [len(frame.messages) for frame in frames] == [0] + 6 * [4]
    counts = [decode(done.trace.buffers[frames[-1].snapshots[r]]["array"], 4) for r in range(4)]
    assert all((each == 1).all() for each in counts)
    assert [own["label"] for own in sources(done.trace).values()] == ["ring_programs.py"]

    half = ring_checks.rehearse(program.scatter, ranks=3)
    assert repr(half) == "6 messages; every rank returned; 3 of 3 ranks hold a whole chunk"
    assert half.right, "its result is to be compared"
    wrong = ring_checks.rehearse(program.adds_to_the_chunk_it_sent, ranks=3)
    assert "0 of 3 ranks hold a whole chunk" in repr(wrong) and not wrong.right
    assert not ring_checks.rehearse(program.broadcasts_everything, ranks=3).right
    wrong = ring_checks.rehearse(program.adds_to_the_chunk_it_sent, program.gather, ranks=2)
    assert "0 of 2 ranks hold all chunks whole" in repr(wrong) and not wrong.right
    costly = ring_checks.rehearse(program.broadcasts_everything, program.nothing, ranks=3)
    assert "3 of 3 ranks" in repr(costly) and not costly.right, "its bytes are not to be compared"

    stuck = ring_checks.rehearse(program.sends_before_anyone_receives)
    assert len(stuck.trace.messages) == 4 and not stuck.right
    assert repr(stuck).startswith("4 messages; deadlock: no rank can go on\n  rank 0 waits in send")
    assert "Which call starts a send and returns at once?" in " ".join(repr(stuck).split())
    assert max(map(len, repr(stuck).splitlines())) <= feedback.WIDTH

    empty = ring_checks.rehearse(program.not_written, ranks=2)
    assert len(empty.trace.messages) == 0 and "still to be written" in repr(empty)
