"""The zoo: sizes that work, orders known by hand, closed forms of time and of memory."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import Costs, metrics, simulate
from dlviz.analysis.memory import held
from dlviz.schedules import NAMES, TITLES, make

ANY_CHUNKS = ("interleaved", "looped_bfs", "interleaved_zb")
SIZES = [(1, 1), (1, 5), (2, 1), (2, 7), (3, 2), (3, 8), (4, 4), (4, 6), (5, 13), (7, 20)]
COSTS = [  # F, I, W: whole numbers, so that sums of them are exact
    (1, 1, 1),
    (3, 7, 5),
    (11, 2, 6),
    (4, 9, 13),
]


def costs(forward, backward_input, backward_weight, **more):
    return Costs(forward, None, backward_input, backward_weight, **more)


def idle(trace):
    return metrics.makespan(trace) - metrics.busy(trace)


def span(trace, rank):
    """Seconds from the rank's first start to its last end."""
    mine = trace.spans[trace.spans.rank == rank]
    return mine.end.max() - mine.start.min()


def group_of(ranks, microbatches):
    return microbatches // max(1, microbatches // ranks)


def is_defined(name, ranks, microbatches):
    """The law: groups of g microbatches have to divide them, and DualPipeV has to be filled."""
    if name in ("interleaved", "interleaved_zb"):
        return microbatches % group_of(ranks, microbatches) == 0
    return name != "dualpipev" or microbatches >= 2 * ranks


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_every_schedule_is_legal_in_every_size_for_which_it_is_defined(name, ranks, microbatches):
    if not is_defined(name, ranks, microbatches):
        with pytest.raises(ValueError, match=rf"^microbatches={microbatches} do not .*: use .*\.$"):
            make(name, ranks, microbatches)
        return
    for chunks in (None, 1, 2, 3) if name in ANY_CHUNKS and ranks > 1 else (None,):
        schedule = make(name, ranks, microbatches, chunks)
        schedule.check()
        assert (schedule.name, schedule.ranks, schedule.microbatches) == (name, ranks, microbatches)
        assert schedule.chunks == len(schedule.stage_rank) // ranks
        assert chunks in (None, schedule.chunks)
        assert schedule.flushes == (name != "pipedream")


@pytest.mark.parametrize(
    ("name", "sizes", "rows"),
    [
        ("naive", (2, 2), ["0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"]),
        ("gpipe", (2, 3), ["0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"]),
        ("1f1b", (2, 3), ["0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"]),
        ("1f1b", (3, 1), ["0F0 0B0", "1F0 1B0", "2F0 2B0"]),
        ("zb_h1", (2, 2), ["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"]),
        (
            "zb_h2",
            (2, 4),
            [
                "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3",
                "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3",
            ],
        ),
        (
            "interleaved",
            (2, 2, 2),
            ["0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"],
        ),
        ("inference", (2, 3), ["0F0 0F1 0F2", "1F0 1F1 1F2"]),
    ],
)
def test_orders_written_by_hand(name, sizes, rows):
    assert [" ".join(map(str, row)) for row in make(name, *sizes).actions] == rows


def test_stages_go_round_the_ranks_or_in_a_v():
    assert make("gpipe", 3, 1).stage_rank == (0, 1, 2)
    assert make("interleaved", 2, 4, 3).stage_rank == (0, 1, 0, 1, 0, 1)
    assert make("zbv", 3, 4).stage_rank == (0, 1, 2, 2, 1, 0)
    assert make("dualpipev", 2, 4).stage_rank == (0, 1, 1, 0)


@pytest.mark.parametrize("times", COSTS)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "pipedream"])
@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_gpipe_and_1f1b_idle_p_minus_1_times_a_forward_and_a_backward(
    name, ranks, microbatches, times
):
    trace = simulate(make(name, ranks, microbatches), costs(*times))
    assert idle(trace).tolist() == [(ranks - 1) * sum(times)] * ranks


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_bubble_ratio_and_fraction_are_the_lectures(name, ranks, microbatches):
    trace = simulate(make(name, ranks, microbatches))
    p, m = ranks, microbatches
    assert metrics.bubble_ratio(trace) == pytest.approx((p - 1) / m)
    assert metrics.bubble_fraction(trace) == pytest.approx((p - 1) / (m + p - 1))


@pytest.mark.parametrize("times", COSTS)
@pytest.mark.parametrize("name", ["interleaved", "looped_bfs"])
@pytest.mark.parametrize(
    ("ranks", "microbatches", "chunks"),
    [(1, 3, 1), (2, 2, 2), (2, 6, 3), (3, 6, 2), (3, 8, 2), (4, 10, 3), (5, 5, 4), (7, 21, 2)],
)
def test_chunks_divide_the_bubble(name, ranks, microbatches, chunks, times):
    trace = simulate(make(name, ranks, microbatches, chunks), costs(*times))
    work = microbatches * chunks * sum(times)
    ratio = (ranks - 1) / (chunks * microbatches)
    assert idle(trace) / work == pytest.approx([ratio] * ranks, abs=1e-12)


@pytest.mark.parametrize("times", COSTS)
@pytest.mark.parametrize(
    ("ranks", "microbatches"), [(1, 1), (2, 2), (2, 7), (3, 4), (5, 5), (6, 20)]
)
def test_zb_h1_idles_p_minus_1_times_the_largest_of_f_i_and_f_plus_i_minus_w(
    ranks, microbatches, times
):
    forward, backward_input, backward_weight = times
    largest = max(forward, backward_input, forward + backward_input - backward_weight)
    trace = simulate(make("zb_h1", ranks, microbatches), costs(*times))
    assert idle(trace).tolist() == [(ranks - 1) * largest] * ranks


@pytest.mark.parametrize("hidden", [0, 3, 8])
@pytest.mark.parametrize(("one", "weight"), [(8, 8), (8, 3)])
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 2), (2, 4), (3, 9), (4, 8), (5, 17)])
def test_dualpipev_idles_as_its_authors_say(ranks, microbatches, one, weight, hidden):
    """F = I >= W; the overlap saves `hidden`, from nothing to the whole forward."""
    backward = one + weight
    both = one + backward - hidden
    overlapped = both if hidden else None
    trace = simulate(
        make("dualpipev", ranks, microbatches), costs(one, one, weight, overlapped=overlapped)
    )
    assert idle(trace).max() == (ranks - 1) * (both + backward - 3 * weight)


@pytest.mark.parametrize("name", ["zb_h2", "zbv"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 1), (2, 3), (3, 5), (4, 9), (5, 20)])
def test_with_f_i_and_w_alike_no_rank_idles_between_its_first_action_and_its_last(
    name, ranks, microbatches
):
    trace = simulate(make(name, ranks, microbatches))
    for rank, seconds in enumerate(metrics.busy(trace)):
        assert span(trace, rank) == seconds


@pytest.mark.parametrize(
    ("name", "makespan"), [("1f1b", 1_456_749), ("zb_h1", 1_310_405), ("zb_h2", 1_236_632)]
)
def test_makespans_of_the_zero_bubble_paper_to_the_unit(name, makespan):
    """Its table of bubble rates: 1.5 B parameters, 8 ranks, 24 microbatches (times in µs)."""
    profiled = costs(18_522, 18_086, 9_337, latency=601)
    trace = simulate(make(name, 8, 24), profiled)
    assert max(span(trace, rank) for rank in range(8)) == makespan
    rate = (makespan - 24 * (18_522 + 18_086 + 9_337)) / makespan
    assert round(rate, 4) == {"1f1b": 0.2431, "zb_h1": 0.1585, "zb_h2": 0.1083}[name]


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_inference_takes_m_plus_p_minus_1_forwards(ranks, microbatches):
    trace = simulate(make("inference", ranks, microbatches), Costs(forward=3))
    assert metrics.makespan(trace) == 3 * (microbatches + ranks - 1)


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_naive_has_one_rank_at_work_at_a_time(ranks, microbatches):
    trace = simulate(make("naive", ranks, microbatches), costs(3, 7, 5))
    assert metrics.makespan(trace) == metrics.busy(trace).sum() == ranks * microbatches * 15


def peak(name, ranks, microbatches, chunks=None):
    """Microbatches (chunks) in flight at most, by the spans; the memory rows say the same."""
    trace = simulate(make(name, ranks, microbatches, chunks), costs(3, 7, 5))
    found = metrics.peak_in_flight(trace)
    assert [one.peak for one in held(trace)] == found.tolist()
    return found


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_microbatches_in_flight(ranks, microbatches):
    p, m = ranks, microbatches
    assert peak("gpipe", p, m).tolist() == [m] * p
    assert peak("naive", p, m).tolist() == [1] * p
    assert peak("looped_bfs", p, m).tolist() == [m * (2 if p > 1 else 1)] * p
    for name in ("1f1b", "pipedream"):
        assert peak(name, p, m).tolist() == [min(p - r, m) for r in range(p)]
    assert (peak("zb_h1", p, m) <= p).all()
    assert (peak("zb_h2", p, m) <= 2 * p - 1).all()
    assert (peak("zbv", p, m) <= 2 * p).all()


@pytest.mark.parametrize("chunks", [1, 2, 4])
@pytest.mark.parametrize(
    ("ranks", "microbatches"), [(2, 1), (2, 6), (3, 2), (3, 8), (4, 4), (4, 10), (7, 21)]
)
def test_chunks_in_flight_of_interleaved(ranks, microbatches, chunks):
    p, m, v = ranks, microbatches, chunks
    group = group_of(p, m)
    held = [min(2 * (p - 1 - r) + (v - 1) * group + 1, m * v) for r in range(p)]
    assert peak("interleaved", p, m, v).tolist() == held


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_pipedream_stashes_at_most_p_minus_r_versions_of_the_weights(ranks, microbatches):
    for rank, row in enumerate(make("pipedream", ranks, microbatches).actions):
        version, stashed, most = 0, {}, 0
        for action in row:
            if action.kind == "F":
                stashed[action.microbatch] = version
            else:
                most = max(most, len({*stashed.values(), version}))
                del stashed[action.microbatch]
                version += 1
        assert most <= ranks - rank


@pytest.mark.parametrize("value", [0, -1, 2.5, 2.0, True, "2", np.float64(2)])
@pytest.mark.parametrize("size", ["ranks", "microbatches", "chunks"])
def test_a_size_that_is_no_size_is_refused_in_one_sentence(size, value):
    sizes = {"ranks": 2, "microbatches": 4, "chunks": 2, size: value}
    with pytest.raises(ValueError) as raised:
        make("interleaved", **sizes)
    law = "has to be a whole number, 1 or more."
    assert str(raised.value) == f"interleaved: {size}={value!r} {law}"


def test_sizes_may_be_numpys():
    assert make("1f1b", np.int64(2), np.int32(3)) == make("1f1b", 2, 3)


@pytest.mark.parametrize("name", ["interleaved", "looped_bfs"])
def test_chunks_need_a_second_rank_to_go_round(name):
    with pytest.raises(ValueError, match=f"^chunks=2 with ranks=1: the chunks of {name} go round"):
        make(name, 1, 4, 2)
    assert make(name, 1, 4).chunks == 1


def test_microbatches_that_make_no_groups_are_refused_with_the_nearest_that_do():
    with pytest.raises(ValueError) as raised:
        make("interleaved", 4, 11, 2)
    assert str(raised.value) == (
        "microbatches=11 do not divide into groups of 5, in which interleaved takes them through "
        "ranks=4: use 10 or 12 microbatches."
    )
    for microbatches in (10, 12):
        make("interleaved", 4, microbatches, 2).check()


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 2), ("zbv", 1), ("dualpipev", 3)])
def test_chunks_are_refused_where_the_schedule_fixes_them(name, chunks):
    with pytest.raises(ValueError, match=f"^chunks={chunks}: {name} has [12] stages? on a rank; "):
        make(name, 2, 8, chunks)


def test_an_unknown_name_is_answered_with_the_names():
    names = ", ".join(NAMES)
    with pytest.raises(ValueError, match=f"^'2f2b' is not a schedule: use one of {names}.$"):
        make("2f2b", 2, 4)


def test_each_schedule_has_the_name_that_papers_give_it():
    assert set(TITLES) == set(NAMES)
    assert (TITLES["zb_h1"], TITLES["dualpipev"]) == ("ZB-H1", "DualPipeV")
