"""The checks of 1F1B: right schedules get all points, each wrong one loses those it should and gets
a hint that fits."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pipeline_programs as program
import pytest
from judging import judged

from dlviz import metrics
from dlviz.grading.assignments.one_f_one_b import checks as pipeline_checks
from dlviz.grading.assignments.one_f_one_b.run import ScheduleSize, rows_of
from dlviz.grading.harness import feedback
from dlviz.grading.harness import sandbox as alone
from dlviz.schedules import make

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "assignments/source/one_f_one_b/one_f_one_b.ipynb"
ROWS = ("order", "in_flight", "no_deadlock", "bubble")
CHECKS = (*ROWS, "training")
POINTS = dict(zip(CHECKS, (3, 3, 1, 1, 2), strict=True))
EVERYTHING = set(CHECKS)


def solution(name):
    """A function as the source notebook has it."""
    names = {"__name__": "handed_in"}
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code" and "BEGIN SOLUTION" in cell.source:
            exec(cell.source, names)
    return names[name]


def sizes_of(function):
    chunked = "chunks" in inspect.signature(function).parameters
    return pipeline_checks.CHUNKED if chunked else pipeline_checks.PLAIN


def given(check, function, sizes=None):
    """A check, and the sizes at which it tries the function."""
    chosen = sizes_of(function) if sizes is None else sizes
    if check == "training" and sizes is None and chosen is pipeline_checks.PLAIN:
        chosen = ()  # its own
    return getattr(pipeline_checks, f"check_{check}"), chosen


def grade(check, function, sizes=None):
    checked, chosen = given(check, function, sizes)
    return checked.grade(function, sizes=chosen)


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
def test_a_right_program_gets_all_points_for_its_rows(name):
    for check in ("order", "in_flight", "bubble") if name.startswith("the") else ("order",):
        report = grade(check, RIGHT[name])
        assert report.failure is None and report.points == POINTS[check], str(report)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RIGHT if name.startswith("the solution")])
def test_the_solution_gets_all_points(name, capsys):
    for check in CHECKS:
        checked = getattr(pipeline_checks, f"check_{check}")
        sizes = sizes_of(RIGHT[name]) if "interleaved" in name else ()
        assert checked(RIGHT[name], sizes=sizes) == POINTS[check] == checked.points
    said = capsys.readouterr().out
    assert said.count("Right, ") == len(CHECKS)
    assert "5x8 and 5x3" in said or "at p x m x v = 4x8x2, 2x6x3 and 3x3x2" in said


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("check", CHECKS)
def test_a_right_program_is_right_for_every_check(name, check):
    report = grade(check, RIGHT[name])
    assert report.failure is None and report.points == POINTS[check], str(report)


def test_the_solutions_give_the_rows_of_the_zoo():
    sizes = [ScheduleSize(p, m) for p in (1, 2, 3, 5, 8) for m in (1, 2, p, 2 * p + 1)]
    for size, tried in rows_of([solution("one_f_one_b")], sizes).items():
        assert tried.rows == make("1f1b", size.ranks, size.microbatches).actions
    sizes = [ScheduleSize(p, k * p, v) for p in (2, 3, 5, 8) for k in (1, 3) for v in (1, 2, 3)]
    for size, tried in rows_of([solution("interleaved")], sizes).items():
        assert tried.rows == make("interleaved", size.ranks, size.microbatches, size.chunks).actions


WRONG = {  # the function, the checks that fail, and what each text is to say
    "GPipe's order": (
        program.gpipe,
        {"order", "in_flight"},
        {
            "order": r"0 of 3 points\. Seen: .*rank 0 runs all its forwards and then all its "
            r"backwards: F0 F1 F2 F3 F4 F5 F6 F7 \[B0\].*that is GPipe's order",
            "in_flight": r"Seen: .*on 4 ranks with 8 microbatches, rank 0 holds the activations of "
            r"up to 8 microbatches at once Expected: fewer: no more than .* Hint: .*as in "
            r"GPipe\. On the last rank, what can follow",
        },
    ),
    "one microbatch at a time": (
        program.one_at_a_time,
        {"in_flight", "bubble"},
        {
            "in_flight": r"rank 0 holds the activations of up to 1 microbatch at once.*all "
            "ranks hold the same number",
            "bubble": r"a bubble ratio of 3 Expected: \(p-1\)/m = 3/8 = 0.375 Hint: .*longest gap"
            r" inside a row is that of rank 0 before B\d, 45 ms",
        },
    ),
    "warm-up one too short": (
        program.warmup_too_short,
        {"in_flight", "bubble"},
        {
            "in_flight": "rank 0 holds .* up to 3 .* Expected: more: as .* Hint: .*too few to keep "
            "the ranks after this one busy",
            "bubble": "a bubble ratio of 1.25 ",
        },
    ),
    "warm-up one too long": (
        program.warmup_too_long,
        {"in_flight"},
        {
            "in_flight": "up to 5 .* Expected: fewer.* rank 0 runs 5 forwards. .*warm-up has 4: is "
            "that one for"
        },
    ),
    "forgets the backwards of the cool-down": (
        program.without_cooldown,
        EVERYTHING - {"in_flight"},
        {
            "order": "rank 0 never runs B5, B6, B7 Expected: each F and each B of the 8 .* once "
            "Hint: .*still in flight: what becomes of them",
            "training": "never runs B5",
        },
    ),
    "a backward before its forward": (
        program.backward_first,
        EVERYTHING,
        {
            "order": r"rank 3 runs B0 before F0: \[B0\].*needs the activations that its",
            "no_deadlock": r"rank 0 stops before its 4th action, 0B0: it needs 1B0.*F0 F1 F2 \[B0",
        },
    ),
    "backwards in the reverse order": (
        program.last_in_first_out,
        {"order", "bubble"},
        {
            "order": r"runs B3 where B0 is due: F0 F1 F2 F3 \[B3\].*that went in first comes "
            "back first",
            "bubble": "rank 0 before B3, 120 ms",
        },
    ),
    "the same on every rank": (
        program.same_on_all_ranks,
        {"order", "in_flight", "bubble"},
        {
            "order": "rank 3 runs all its forwards .*Here there are fewer: how long is the warm-up",
            "in_flight": "rank 1 holds .* up to 4 .* Expected: fewer.*all ranks hold the same",
            "bubble": "a bubble ratio of 1.875 .* Hint: the longest gap inside a row",
        },
    ),
    "the ranks the wrong way round": (
        program.ranks_the_wrong_way_round,
        EVERYTHING,
        {
            "in_flight": "which rank waits longest for its first gradient",
            "no_deadlock": r"rank 0 stops before its 2nd action, 0B0: it needs 1B0, which never ran"
            r"; rank 1, which has 1B0, stops before 1F1: F0 \[B0\] .* Hint: .*the circle closes",
            "training": "the circle closes",
        },
    ),
    "works only where the ranks divide the microbatches": (
        program.in_rounds_of_ranks,
        EVERYTHING,
        {
            "order": "on 3 ranks with 7 microbatches, rank 0 never runs F6, B6 .* Hint: .*it "
            "works where the ranks divide the microbatches",
            "bubble": "where the ranks divide",
        },
    ),
    "no limit where there are fewer microbatches than ranks": (
        program.warmup_without_limit,
        EVERYTHING - {"no_deadlock"},
        {
            "order": r"on 5 ranks with 3 microbatches, rank 0 runs F3: F0 F1 F2 \[F3\] Expected: "
            "the microbatches are 0 to 2 Hint: .*Here there are fewer: how long is .*loops",
            "in_flight": "Here there are fewer",
        },
    ),
    "two forwards, two backwards": (
        program.two_by_two,
        {"order", "in_flight", "bubble"},
        {"order": "rank 0 runs two backwards in a row: F0 F1 F2 F3 F4 B0 .* Expected: .*no for"},
    ),
    "counts microbatches from one": (
        program.counts_from_one,
        EVERYTHING - {"in_flight"},
        {"order": "rank 0 runs F8: .* Expected: the microbatches are 0 to 7 Hint: .*loop that"},
    ),
    "two loops overlap": (
        program.overlapping_loops,
        {"order", "no_deadlock", "bubble", "training"},
        {"order": "rank 0 runs B3 twice: .*where is the one to stop"},
    ),
    "forwards alone": (
        program.forwards_alone,
        EVERYTHING,
        {
            "order": "rank 0 never runs B0, B1, B2, B3, ....*gives no gradient",
            "no_deadlock": "rank 0 never runs B0, B1",
        },
    ),
    "interleaved, microbatches not in groups": (
        program.not_grouped,
        EVERYTHING - {"in_flight"},
        {
            "order": r"rank 0 runs 0F4 where 4F0 is due: .*\[0F4\] Expected: forwards in this "
            "order: 0F0 0F1 0F2 0F3 4F0 ... Hint: .*in groups of 4",
            "no_deadlock": "the circle closes",
        },
    ),
    "interleaved, the first chunk back first": (
        program.first_chunk_back_first,
        EVERYTHING - {"in_flight"},
        {"order": "runs 0B0 where 4B0 is due.*gradients come back from the end of the mod"},
    ),
    "interleaved, stages in blocks": (
        program.stages_in_blocks,
        EVERYTHING - {"in_flight"},
        {
            "order": "rank 0 runs 1F0: .* Expected: stage 1 is on rank 1 Hint: .*go round the "
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
            "in_flight": "up to 4 chunks at once Expected: more.*too short.*how many stages of "
            "this rank",
            "no_deadlock": "4F0 comes later on the same rank",
        },
    ),
    "interleaved, warm-up for one way": (
        program.warmup_for_one_way,
        {"in_flight"},
        {"in_flight": "up to 8 chunks at once Expected: more"},
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
            "order": "rank 0 never runs 4F0, 4F1, 4F2, 4F3, .* .* Hint: .*stage 4 is one of this "
            "rank's too",
            "no_deadlock": "rank 0 never runs 4F0",
        },
    ),
    "interleaved, stages past the end": (
        program.stages_past_the_end,
        EVERYTHING,
        {"order": r"rank 0 runs 8F0: 4F0 .* Expected: the stages 0 to 7 Hint: .*as many as"},
    ),
    "interleaved, no stage named": (
        program.no_stage_named,
        EVERYTHING,
        {"order": "'F0', which is no action Expected: .* such as 4F0 or 4B3 Hint: .*{s"},
    ),
    "never stops yielding": (
        program.never_stops,
        EVERYTHING,
        {"order": "rank 0 was still yielding after 160 actions Expected: 16 actions"},
    ),
    "not written": (
        program.not_written,
        EVERYTHING,
        {"training": "rank 0 raised NotImplementedError.*still to be written, in place of its"},
    ),
    "returns nothing": (
        program.nothing_returned,
        EVERYTHING,
        {"order": "the function returned None .* Hint: .*yield each action where it is due"},
    ),
    "returns a number": (
        program.a_number,
        EVERYTHING,
        {"order": "the function returned 8 .* Hint: .*yield each action where it is due"},
    ),
    "yields nothing": (
        program.nothing_yielded,
        EVERYTHING,
        {"no_deadlock": "rank 0 yielded nothing Expected: the 16 actions of the rank"},
    ),
    "yields pairs": (
        program.pairs,
        EVERYTHING,
        {"order": r"yielded \('F', 0\), which is no action Expected: .*such as F0 or B3 .*f-str"},
    ),
    "raises on the last rank": (
        program.breaks_on_the_last_rank,
        EVERYTHING,
        {"order": r"rank 3 raised ZeroDivisionError: .*, at pipeline_programs.py:\d+: return"},
    ),
    "other parameters": (
        program.too_few_parameters,
        EVERYTHING,
        {"order": "rank 0 raised TypeError: .* .* Hint: .*parameters as they are given"},
    ),
    "four ranks alone": (
        program.four_ranks_only,
        EVERYTHING,
        {
            "order": "on 5 ranks with 8 microbatches, rank 4 raised IndexError.*in a cell of its o",
            "in_flight": r"0.5 of 3 points: right at p x m = 4x8\. .*where rank, ranks or microb",
        },
    ),
    "copied from the picture": (
        program.copied_from_the_picture,
        EVERYTHING,
        {"order": r"0.5 of 3 points: right at p x m = 4x8\. .*those of that size, where rank"},
    ),
    "one long text": (
        program.one_long_text,
        EVERYTHING,
        {"order": "the function returned 'F0 F1 .* read letter by letter"},
    ),
    "slots in which nothing happens": (
        program.idle_slots,
        EVERYTHING,
        {"order": "yielded '--', which is no action.* waiting is not written down"},
    ),
    "None while waiting": (
        program.none_while_waiting,
        EVERYTHING,
        {"order": "yielded None, which is no action.* waiting is not written down"},
    ),
    "the rows of all ranks": (
        program.rows_of_all_ranks,
        EVERYTHING,
        {"order": r"yielded \['F0'.*gives the row of one rank"},
    ),
    "fractions": (program.floats, EVERYTHING, {"order": r"yielded 'F0\.0'.*`/` makes a fraction"}),
    "a default list that stays": (
        program.default_list_that_stays,
        EVERYTHING,
        {"order": "rank 1: the function returned the list that it had returned before.*default of"},
    ),
    "a list from outside": (
        program.list_from_outside,
        EVERYTHING,
        {"bubble": "rank 1: the function returned the list that it had returned before"},
    ),
    "GPipe on the last rank": (
        program.last_rank_as_gpipe,
        {"in_flight", "no_deadlock", "bubble", "training"},
        {"in_flight": "rank 3 runs all its forwards before its first backward. What can follow"},
    ),
    "a warm-up of two for each rank": (
        program.warmup_two_per_rank,
        {"in_flight"},
        {"in_flight": "rank 0 runs 7 forwards. .*so its warm-up has 6: is that one for each rank"},
    ),
    "interleaved, a warm-up too long": (
        program.chunked_warmup_too_long,
        {"order", "in_flight"},
        {"in_flight": r"rank 0 runs 15 forwards. .*14: is that \(v-1\)p and 2\(p-1-r\) more, with"},
    ),
    "the last back first, in the end": (
        program.last_back_first_in_the_end,
        {"order", "bubble"},
        {"order": "right at p x m = 2x6. .*rank 0 runs B7 .*went in first comes back first"},
    ),
    "a list from outside, yielded": (
        program.yields_from_outside,
        EVERYTHING - {"no_deadlock"},
        {"order": "rank 1 runs F0 twice.*made outside of the call.*every call adds to it"},
    ),
    "small letters": (
        program.small_letters,
        EVERYTHING,
        {"order": "yielded 'f0', which is no action.*write a capital F or B, and the number right"},
    ),
    "two in one text": (
        program.two_in_one_text,
        EVERYTHING,
        {"order": "yielded 'F0 B0', which is no action.*several actions in one text"},
    ),
    "a dictionary": (
        program.a_dictionary,
        EVERYTHING,
        {"order": "the function returned {0: .*gives the row of one rank"},
    ),
    "a fraction of a loop": (
        program.a_fraction_of_a_loop,
        EVERYTHING,
        {"order": "raised TypeError: 'float' object .*`/` makes a fraction"},
    ),
    "returns its first action": (
        program.returns_its_first,
        EVERYTHING,
        {"order": "rank 0 yielded nothing .*`return` ends a generator"},
    ),
    "interleaved, a warm-up longer than the row": (
        program.interleaved_without_limit,
        EVERYTHING - {"no_deadlock"},
        {"in_flight": "rank 0 runs 7 forwards, and there are 6. How many may a warm-up run"},
    ),
    "parameters in another order": (
        program.parameters_swapped,
        EVERYTHING,
        {"order": "has the parameters rank, microbatches, ranks Expected: rank, ranks, microb"},
    ),
    "one of each": (
        program.one_of_each,
        EVERYTHING,
        {"no_deadlock": "0 of 1 point. Seen: .*rank 0 never runs F1, F2, F3, F4, ..."},
    ),
    "sys.exit": (
        program.exits,
        EVERYTHING,
        {"order": "rank 0 raised SystemExit.*Let the function r"},
    ),
    "os._exit": (
        program.ends_the_process,
        EVERYTHING,
        {"order": "exited with code 0.* Hint: .*ended its process. Let the function return"},
    ),
    "a row of dlviz's own schedule": (
        program.row_of_the_library,
        EVERYTHING,
        {"order": r"rank 0: the row was made by dlviz's make, pipeline_programs.py:\d+: return"},
    ),
    "the reference in the checker's frame": (
        program.reads_the_reference,
        EVERYTHING,
        {"order": r"rank 0: the row was made by f_back, pipeline_programs.py:\d+: def"},
    ),
    "a table of dlviz's schedules": (
        program.from_a_table_of_the_library,
        EVERYTHING,
        {"order": "rank 0 yielded 0F0, which is no action.*an object of dlviz's own"},
    ),
    "a judge that was changed": (
        program.changes_the_judge,
        EVERYTHING,
        {"order": "made by dlviz's|never runs F1"},
    ),
}
PAIRS = [(name, check) for name, (_, _, words) in WRONG.items() for check in words]


@pytest.mark.parametrize(("name", "check"), PAIRS)
def test_a_wrong_program_is_told_what_fits(name, check):
    function, lost, words = WRONG[name]
    if function is program.changes_the_judge:
        report = grade(check, function)
    else:
        checked, sizes = given(check, function)
        report = judged(checked, [function], sizes)
    said = " ".join(str(report).split())
    assert re.search(words[check], said), said
    assert check in lost and report.points < POINTS[check]
    assert report.failure.seen and report.failure.expected and report.failure.hint
    assert len(str(report).splitlines()) <= 12


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_loses_the_points_it_should(name):
    function, lost, _ = WRONG[name]
    reports = {check: grade(check, function) for check in CHECKS}
    told = {check: str(report) for check, report in reports.items()}
    assert {check for check in CHECKS if reports[check].points < POINTS[check]} == lost, told


@pytest.mark.parametrize("function", [program.gpipe, program.looped_bfs])
def test_gpipes_order_gets_at_most_half_of_the_points(function):
    points = {check: grade(check, function).points for check in ROWS}
    assert points == {"order": 0, "in_flight": 0, "no_deadlock": 1, "bubble": 1}
    assert sum(points.values()) + POINTS["training"] <= sum(POINTS.values()) / 2


def test_each_size_has_its_share_of_the_points():
    few = grade("order", program.warmup_without_limit)  # all but 5 ranks with 3 microbatches
    assert few.points == 2.25 and [str(size) for size in few.failed] == [
        "on 5 ranks with 3 microbatches"
    ]
    assert "Not yet, 2.25 of 3 points: right at p x m = 4x8, 2x6, 3x7 and 5x8." in str(few)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "line"),
    [
        (program.turns_for_ever, "[wa]"),
        (program.swallows_every_exception, ""),
        (program.sleeps, r"time\.sleep\(60\)"),
    ],
)
def test_a_program_that_never_ends_is_told_when_the_time_is_up(function, line, monkeypatch):
    monkeypatch.setattr(alone, "SECONDS", 1.0)
    report = grade("order", function)
    said = " ".join(str(report).split())
    assert re.search(
        rf"still busy when the time was up, at pipeline_programs.py:\d+: {line}", said
    ), said
    assert "which loop around that line goes on for ever" in said and report.points == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [program.goes_on_for_ever_in_c, pytest.param(program.lasting_list, marks=pytest.mark.sweep)],
)
def test_a_list_that_grows_for_ever_is_ended_by_half_a_gigabyte_or_the_time(function):
    said = " ".join(str(grade("bubble", function)).split())
    assert re.search("raised MemoryError.*something grows without end|when the time was up", said)


def test_what_the_program_prints_is_shown_and_leaves_no_profile_function(capsys):
    before = sys.getprofile()
    grade("bubble", prints, [(2, 2)])
    assert capsys.readouterr().out == "rank 0\nrank 1\n" and sys.getprofile() is before


def prints(rank, ranks, microbatches):
    print("rank", rank)
    return program.list_of_1f1b(rank, ranks, microbatches)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if "one microbatch" in name else pytest.mark.sweep)
        for name in WRONG
        if "training" not in WRONG[name][1]
    ],
)
def test_another_order_that_comes_to_its_end_still_trains(name):
    function = WRONG[name][0]
    sizes = [(2, 4, 2) if sizes_of(function) is pipeline_checks.CHUNKED else (4, 6)]
    assert grade("training", function, sizes).failure is None


@pytest.mark.slow
def test_training_that_is_not_that_of_one_process_is_told(monkeypatch):
    launch = pipeline_checks.launch

    def spoiled(*args, **kwargs):
        run = launch(*args, **kwargs)
        change(run.results)
        return run

    monkeypatch.setattr(pipeline_checks, "launch", spoiled)
    change = lambda results: results[1][1][1][0].mul_(1 + 1e-6)  # noqa: E731
    failure = grade("training", program.one_f_one_b, [(2, 2)]).failure
    assert "the gradients of stage 1 are not those of one process" in failure.seen
    change = lambda results: results[0][0].__setitem__(2, 0.5)  # noqa: E731
    failure = grade("training", program.one_f_one_b, [(2, 2)]).failure
    assert re.search(r"rank 0 has the loss 0.5 in step 2, not 0\.\d+", failure.seen)


def test_a_rehearsal_simulates_the_students_own_schedule():
    done = pipeline_checks.rehearse(program.one_f_one_b, ranks=4, microbatches=8)
    assert repr(done) == "64 actions; bubble ratio 0.375; in flight at most 4, 3, 2, 1"
    assert done.right and not pipeline_checks.rehearse(program.gpipe).right
    assert not pipeline_checks.rehearse(program.warmup_too_long).right
    assert len(done.trace.spans) == 64 and done.trace.meta["clock"] == "simulated"
    assert np.isclose(metrics.makespan(done.trace), (8 + 3) * 0.015)

    chunked = pipeline_checks.rehearse(program.interleaved, ranks=4, microbatches=8, chunks=2)
    assert chunked.right
    assert repr(chunked) == "128 actions; bubble ratio 0.1875; in flight at most 11, 9, 7, 5"
    assert np.isclose(metrics.makespan(chunked.trace), 8 * 0.015 * 1.1875)


def test_a_rehearsal_shows_a_schedule_that_stops_as_far_as_it_goes():
    stuck = pipeline_checks.rehearse(program.ranks_the_wrong_way_round)
    ran = {(r, k[0], i) for r, k, i in zip(*map(list, columns(stuck.trace)), strict=True)}
    assert ran == {(0, "f", 0), (1, "f", 0), (2, "f", 0), (3, "f", 0)}
    assert repr(stuck).startswith("4 of 64 actions can run. On 4 ranks with 8 microbatches, rank 0")
    assert max(map(len, repr(stuck).splitlines())) <= feedback.WIDTH

    twice = pipeline_checks.rehearse(program.overlapping_loops)
    assert repr(twice).startswith("58 of 84 actions can run.") and len(twice.trace.spans) == 58
    whole = pipeline_checks.rehearse(program.without_cooldown)
    assert repr(whole).startswith("58 of 58 actions can run.") and len(whole.trace.spans) == 58

    for function in (program.not_written, program.never_stops, program.pairs):
        empty = pipeline_checks.rehearse(function)
        assert len(empty.trace.spans) == 0 and empty.trace.ranks == [*range(4)]
        assert "\nHint: " in repr(empty)
    nowhere = pipeline_checks.rehearse(program.stages_past_the_end, chunks=2)
    assert len(nowhere.trace.spans) == 0 and "0 of 128 actions can run" in repr(nowhere)


def columns(trace):
    return (getattr(trace.spans, name).tolist() for name in ("rank", "kind", "microbatch"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # of a busy machine that comes late
def test_the_students_schedule_trains_on_paced_ranks_for_all_to_see():
    done = pipeline_checks.train(program.interleaved, ranks=2, microbatches=4, chunks=2)
    assert done.trace.meta["clock"] == "paced"
    assert (done.trace.messages.nbytes > 8).sum() == 24, "and one that tells the loss"
    told = r"2 processes; loss \d\.\d+; bubble ratio measured \d\.\d+, simulated 0\.125"
    assert re.fullmatch(told, done.told)
    work = {"forward", "backward"}
    assert sum(kind in work for kind in done.trace.spans.kind.tolist()) == 32

    stuck = pipeline_checks.train(program.ranks_the_wrong_way_round)
    assert stuck.trace.meta["clock"] == "simulated"
    assert repr(stuck).startswith("No rank was started. 4 of 64 actions can run.")
