"""The assignment's checks: right schedules get all points, each wrong one loses those it should and
gets a hint that fits."""

from __future__ import annotations

import inspect
import re
import sys
import time
from pathlib import Path

import nbformat
import numpy as np
import pipeline_programs as program
import pytest

from dlviz import metrics
from dlviz.grading import feedback, schedules
from dlviz.schedules import make

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "labs/assignments/source/one_f_one_b/one_f_one_b.ipynb"
ROWS = ("order", "in_flight", "no_deadlock", "bubble")
CHECKS = (*ROWS, "training")
EVERYTHING = set(CHECKS)


def solution(name):
    """A function as the source notebook has it."""
    names = {}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code" and "BEGIN SOLUTION" in cell.source:
            exec(cell.source, names)
    return names[name]


def is_chunked(function):
    return "chunks" in inspect.signature(function).parameters


def failures(function, checks, sizes=None):
    """Which checks fail, and with what text."""
    sizes = sizes or (schedules.CHUNKED if is_chunked(function) else schedules.PLAIN)
    found = {}
    for name in checks:
        try:
            getattr(schedules, f"check_{name}")(function, sizes)
        except schedules.CheckFailed as failed:
            found[name] = failed
    return found


RIGHT = {
    "the solution of 1F1B": solution("one_f_one_b"),
    "1F1B as a list": program.list_of_1f1b,
    "1F1B by counting": program.by_counting,
    "1F1B with stages named": program.with_stages,
    "the solution of interleaved": solution("interleaved"),
    "interleaved in two lists": program.interleaved,
    "interleaved by counting": program.interleaved_by_counting,
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_gets_all_points_for_its_rows(name, capsys):
    assert failures(RIGHT[name], ROWS) == {}
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(ROWS) and all(line.startswith("Right: ") for line in said)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_trains_real_ranks(name):
    assert failures(RIGHT[name], ["training"]) == {}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_solutions_give_the_rows_of_the_zoo(ranks, groups):
    for microbatches in (groups, groups * ranks, groups * ranks + 1):
        size = schedules.Size(ranks, microbatches)
        tried = schedules.try_out(solution("one_f_one_b"), size)
        assert tried.rows == make("1f1b", ranks, microbatches).actions
    for chunks in (1, 2, 3) if ranks > 1 else (1,):
        size = schedules.Size(ranks, groups * ranks, chunks)
        tried = schedules.try_out(solution("interleaved"), size)
        assert tried.rows == make("interleaved", ranks, groups * ranks, chunks).actions


WRONG = {  # the function, the checks that fail, and what each text is to say
    "GPipe's order": (
        program.gpipe,
        {"in_flight"},
        {
            "in_flight": r"Seen: .*on 4 ranks with 8 microbatches, rank 0 holds the activations of "
            r"up to 8 microbatches at once\nExpected: 4: min\(p - r, m\) with r = 0\nHint: .*as in "
            r"GPipe\. On the last rank, what can follow"
        },
    ),
    "one microbatch at a time": (
        program.one_at_a_time,
        {"in_flight", "bubble"},
        {
            "in_flight": r"rank 0 holds the activations of up to 1 microbatch at once[\s\S]*all "
            "ranks hold the same number",
            "bubble": r"a bubble ratio of 3\nExpected: \(p-1\)/m = 3/8 = 0.375\nHint: .*longest gap"
            r" inside a row is that of rank 0 before B\d, 45 ms",
        },
    ),
    "warm-up one too short": (
        program.warmup_too_short,
        {"in_flight", "bubble"},
        {
            "in_flight": "rank 0 holds .* up to 3 .*\nExpected: 4.*\nHint: .*too few to keep the "
            "ranks behind this one busy",
            "bubble": "a bubble ratio of 1.25\n",
        },
    ),
    "warm-up one too long": (
        program.warmup_too_long,
        {"in_flight"},
        {"in_flight": "up to 5 .*\nExpected: 4.*\nHint: .*the steady state begins with a forward"},
    ),
    "forgets the backwards of the cool-down": (
        program.without_cooldown,
        {"order", "bubble", "training"},
        {
            "order": "rank 0 never runs B5, B6, B7\nExpected: each F and each B of the 8 .* once\n"
            "Hint: .*still in flight: what becomes of them",
            "training": "never runs B5",
        },
    ),
    "a backward before its forward": (
        program.backward_first,
        EVERYTHING,
        {
            "order": r"rank 3 runs B0 before F0: \[B0\][\s\S]*needs the activations that its",
            "no_deadlock": r"rank 0 stops before its action 3, 0B0: it needs 1B0.*F0 F1 F2 \[B0\]",
        },
    ),
    "backwards in the reverse order": (
        program.last_in_first_out,
        {"order", "bubble"},
        {
            "order": r"runs B3 where B0 is due: F0 F1 F2 F3 \[B3\][\s\S]*that went in first comes "
            "back first",
            "bubble": "rank 0 before B3, 120 ms",
        },
    ),
    "the same on every rank": (
        program.same_on_all_ranks,
        {"in_flight", "bubble"},
        {"in_flight": "rank 1 holds .* up to 4 .*\nExpected: 3[\\s\\S]*all ranks hold the same"},
    ),
    "the ranks the wrong way round": (
        program.ranks_the_wrong_way_round,
        EVERYTHING - {"order"},
        {
            "in_flight": "which rank waits longest for its first gradient",
            "no_deadlock": r"rank 0 stops before its action 1, 0B0: it needs 1B0, which never ran; "
            r"rank 1, which has 1B0, stops before 1F1: F0 \[B0\]\n.*\nHint: .*the circle closes",
            "training": "the circle closes",
        },
    ),
    "works only where the ranks divide the microbatches": (
        program.in_rounds_of_ranks,
        EVERYTHING - {"no_deadlock"},
        {
            "order": "on 3 ranks with 7 microbatches, rank 0 never runs F6, B6\n.*\nHint: .*it "
            "works where the ranks divide the microbatches",
            "bubble": "where the ranks divide",
        },
    ),
    "no limit where there are fewer microbatches than ranks": (
        program.warmup_without_limit,
        EVERYTHING - {"no_deadlock"},
        {
            "order": r"on 5 ranks with 3 microbatches, rank 0 runs F3: F0 F1 F2 \[F3\]\nExpected: "
            "the microbatches are 0 to 2\nHint: .*Here there are fewer: which of your loops",
            "in_flight": "Here there are fewer",
        },
    ),
    "two forwards, two backwards": (
        program.two_by_two,
        {"order", "in_flight", "bubble"},
        {"order": "rank 0 runs two backwards in a row: F0 F1 F2 F3 F4 B0 .*\nExpected: .*no forw"},
    ),
    "counts microbatches from one": (
        program.counts_from_one,
        {"order", "bubble", "training"},
        {"order": "rank 0 runs F8: .*\nExpected: the microbatches are 0 to 7\nHint: .*loop that"},
    ),
    "two loops overlap": (
        program.overlapping_loops,
        {"order", "bubble", "training"},
        {"order": "rank 0 runs B3 twice: [\\s\\S]*where is the one to stop"},
    ),
    "forwards alone": (
        program.forwards_alone,
        EVERYTHING,
        {
            "order": "rank 0 never runs B0, B1, B2, B3, ...[\\s\\S]*gives no gradient",
            "no_deadlock": "no rank runs a backward",
        },
    ),
    "interleaved, microbatches not in groups": (
        program.not_grouped,
        EVERYTHING - {"in_flight"},
        {
            "order": r"rank 0 runs 0F4 where 4F0 is due: .*\[0F4\]\nExpected: forwards in this "
            "order: 0F0 0F1 0F2 0F3 4F0 ...\nHint: .*in groups of 4",
            "no_deadlock": "the circle closes",
        },
    ),
    "interleaved, the first chunk back first": (
        program.first_chunk_back_first,
        EVERYTHING - {"in_flight"},
        {"order": "runs 0B0 where 4B0 is due[\\s\\S]*gradients come back from the end of the mod"},
    ),
    "interleaved, stages in blocks": (
        program.stages_in_blocks,
        EVERYTHING - {"in_flight"},
        {
            "order": "rank 0 runs 1F0: .*\nExpected: stage 1 is on rank 1\nHint: .*go round the "
            "ranks, one to each",
            "no_deadlock": "1B0: it needs 2B0, which never ran; rank 1, which has 2B0",
            "training": "stage 1 is on rank 1",
        },
    ),
    "interleaved, the warm-up of 1F1B": (
        program.warmup_of_1f1b,
        EVERYTHING,
        {
            "order": "rank 0 runs 4B0 before 4F0",
            "in_flight": r"up to 4 chunks at once\nExpected: 11: min\(2\(p-1-r\) \+ \(v-1\)p \+ 1, "
            r"vm\) with r = 0\nHint: .*too short.*how many stages of this rank",
            "no_deadlock": "4F0 comes later on the same rank",
        },
    ),
    "interleaved, warm-up for one way": (
        program.warmup_for_one_way,
        {"in_flight"},
        {"in_flight": "up to 8 chunks at once\nExpected: 11"},
    ),
    "interleaved, all forwards first": (
        program.looped_bfs,
        {"order", "in_flight"},
        {"order": "in groups of 4", "in_flight": "every forward is run before the first backward"},
    ),
    "interleaved, only the first chunk": (
        program.only_the_first_chunk,
        EVERYTHING,
        {
            "order": "rank 0 never runs 4F0, 4F1, 4F2, 4F3, .*\n.*\nHint: .*stage 4 is one of this "
            "rank's too",
            "no_deadlock": "no rank runs stage 4. Whose is it",
        },
    ),
    "interleaved, stages past the end": (
        program.stages_past_the_end,
        EVERYTHING,
        {"order": r"rank 0 runs 8F0: 4F0 .*\nExpected: the stages 0 to 7\nHint: .*as many as"},
    ),
    "interleaved, no stage named": (
        program.no_stage_named,
        EVERYTHING,
        dict.fromkeys(CHECKS, "'F0', which is no action\nExpected: .* like 4F0 or 4B3\nHint: .*{s"),
    ),
    "never stops yielding": (
        program.never_stops,
        EVERYTHING,
        dict.fromkeys(CHECKS, "rank 0 was still yielding after 160 actions\nExpected: 16 actions"),
    ),
    "a loop without end that yields nothing": (
        program.turns_for_ever,
        EVERYTHING,
        dict.fromkeys(
            CHECKS,
            r"rank 0 was still busy after 100000 lines, at pipeline_programs.py:\d+: [wa].*\n"
            r".*\nHint: .*does the loop at that line ever end\?",
        ),
    ),
    "a list that grows for ever": (
        program.lasting_list,
        EVERYTHING,
        {"bubble": r"still busy after 100000 lines, at pipeline_programs.py:\d+: [rw]"},
    ),
    "not written": (
        program.not_written,
        EVERYTHING,
        dict.fromkeys(CHECKS, "rank 0 raised NotImplementedError.*\n.*\nHint: .*still to be writ"),
    ),
    "returns nothing": (
        program.nothing_returned,
        EVERYTHING,
        {"order": "the function returned None\n.*\nHint: .*yield each action where it is due"},
    ),
    "returns a number": (
        program.a_number,
        EVERYTHING,
        {"order": "the function returned 8\n.*\nHint: .*yield each action where it is due"},
    ),
    "yields nothing": (
        program.nothing_yielded,
        EVERYTHING,
        {"no_deadlock": "rank 0 yielded nothing\nExpected: the 16 actions of the rank"},
    ),
    "yields pairs": (
        program.pairs,
        EVERYTHING,
        {"order": r"yielded \('F', 0\), which is no action\nExpected: .*like F0 or B3\n.*f-string"},
    ),
    "raises on the last rank": (
        program.breaks_on_the_last_rank,
        EVERYTHING,
        {"order": r"rank 3 raised ZeroDivisionError: .*, at pipeline_programs.py:\d+: return"},
    ),
    "other parameters": (
        program.too_few_parameters,
        EVERYTHING,
        {"order": "rank 0 raised TypeError: .*\n.*\nHint: .*parameters as they are given"},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_loses_the_points_it_should_and_gets_a_hint_that_fits(name):
    function, expected, words = WRONG[name]
    found = failures(function, [*ROWS, *(expected & {"training"})])
    assert set(found) == expected, {check: str(failed) for check, failed in found.items()}
    for check, pattern in words.items():
        text = str(found[check])
        assert re.search(pattern, text), text
    for failed in found.values():
        assert failed.seen and failed.expected and failed.hint
        assert len(failed._render_traceback_()) <= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WRONG if "training" not in WRONG[name][1]])
def test_another_order_that_comes_to_its_end_still_trains(name):
    function = WRONG[name][0]
    assert failures(function, ["training"], [(2, 4, 2) if is_chunked(function) else (4, 6)]) == {}


@pytest.mark.slow
def test_training_that_is_not_that_of_one_process_is_told(monkeypatch):
    launch = schedules.launch

    def spoiled(*args, **kwargs):
        run = launch(*args, **kwargs)
        change(run.results)
        return run

    monkeypatch.setattr(schedules, "launch", spoiled)
    change = lambda results: results[1][1][1][0].mul_(1 + 1e-6)  # noqa: E731
    (failed,) = failures(program.one_f_one_b, ["training"], [(2, 2)]).values()
    assert "the gradients of stage 1 are not those of one process" in failed.seen
    change = lambda results: results[0][0].__setitem__(2, 0.5)  # noqa: E731
    (failed,) = failures(program.one_f_one_b, ["training"], [(2, 2)]).values()
    assert re.search(r"rank 0 has the loss 0.5 in step 2, not 0\.\d+", failed.seen)


def test_programs_that_never_end_are_told_at_once_and_leave_no_trace_function():
    before, start = sys.gettrace(), time.perf_counter()
    for function in (program.never_stops, program.turns_for_ever, program.lasting_list):
        assert set(failures(function, ["order"])) == {"order"}
    assert time.perf_counter() - start < 5 and sys.gettrace() is before


def test_a_rehearsal_simulates_the_students_own_schedule():
    done = schedules.rehearse(program.one_f_one_b, ranks=4, microbatches=8)
    assert repr(done) == "64 actions; bubble ratio 0.375; in flight at most 4, 3, 2, 1"
    assert len(done.trace.spans) == 64 and done.trace.meta["clock"] == "simulated"
    assert np.isclose(metrics.makespan(done.trace), (8 + 3) * 0.015)

    chunked = schedules.rehearse(program.interleaved, ranks=4, microbatches=8, chunks=2)
    assert repr(chunked) == "128 actions; bubble ratio 0.1875; in flight at most 11, 9, 7, 5"
    assert np.isclose(metrics.makespan(chunked.trace), 8 * 0.015 * 1.1875)


def test_a_rehearsal_shows_a_schedule_that_stops_as_far_as_it_goes():
    stuck = schedules.rehearse(program.ranks_the_wrong_way_round)
    ran = {(r, k[0], i) for r, k, i in zip(*map(list, columns(stuck.trace)), strict=True)}
    assert ran == {(0, "f", 0), (1, "f", 0), (2, "f", 0), (3, "f", 0)}
    assert repr(stuck).startswith("4 of 64 actions can run. On 4 ranks with 8 microbatches, rank 0")
    assert max(map(len, repr(stuck).splitlines())) <= feedback.WIDTH

    twice = schedules.rehearse(program.overlapping_loops)
    assert repr(twice).startswith("58 of 84 actions can run.") and len(twice.trace.spans) == 58
    whole = schedules.rehearse(program.without_cooldown)
    assert repr(whole).startswith("58 of 58 actions can run.") and len(whole.trace.spans) == 58

    for function in (program.not_written, program.never_stops, program.pairs):
        empty = schedules.rehearse(function)
        assert len(empty.trace.spans) == 0 and empty.trace.ranks == [*range(4)]
        assert "\nHint: " in repr(empty)
    nowhere = schedules.rehearse(program.stages_past_the_end, chunks=2)
    assert len(nowhere.trace.spans) == 0 and "0 of 128 actions can run" in repr(nowhere)


def columns(trace):
    return (getattr(trace.spans, name).tolist() for name in ("rank", "kind", "microbatch"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # of a busy machine that comes late
def test_the_students_schedule_trains_on_paced_ranks_for_all_to_see():
    done = schedules.train(program.interleaved, ranks=2, microbatches=4, chunks=2)
    assert done.trace.meta["clock"] == "paced"
    assert (done.trace.messages.nbytes > 8).sum() == 24, "and one that tells the loss"
    told = r"2 processes; loss \d\.\d+; bubble ratio measured \d\.\d+, simulated 0\.125"
    assert re.fullmatch(told, done.told)
    work = {"forward", "backward"}
    assert sum(kind in work for kind in done.trace.spans.kind.tolist()) == 32

    stuck = schedules.train(program.ranks_the_wrong_way_round)
    assert stuck.trace.meta["clock"] == "simulated"
    assert repr(stuck).startswith("No rank was started. 4 of 64 actions can run.")
