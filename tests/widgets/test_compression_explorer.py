"""The explorer of compression: what it predicts of each method, and a run beside it."""

from __future__ import annotations

import json

import kernel
import pytest
from timing import changed_within

from dlviz import compression
from dlviz.collectives.code_methods import how_of
from dlviz.sim import code_bytes, collective_seconds
from dlviz.sim.compression import HOW, methods
from dlviz.widgets import CompressionExplorer
from dlviz.widgets.compression.methods import DENSE, METHODS, options
from dlviz.widgets.compression.run import STEPS

N = 26_122


def state(explorer):
    return json.loads(explorer.state)


def row(explorer, name=None):
    return next(one for one in state(explorer)["rows"] if one["name"] == (name or explorer.method))


def test_a_control_is_answered_immediately_and_loads_no_torch():
    changes = [{"ranks": 8}, {"method": "qsgd", "bits": 2}, {"n": 100_000}, {"bandwidth": 1e9}]
    changed_within(0.05, "widgets.CompressionExplorer()", changes)


def test_codes_meet_as_their_compressors_allow():
    for name in METHODS.keys() - {DENSE}:
        by = compression.make(name)
        assert METHODS[name].how == methods(by.linear, by.codes), name
        for how in HOW:
            if how in METHODS[name].how:
                assert how_of(by, how) == how
            else:
                with pytest.raises(ValueError, match="use "):
                    how_of(by, how)


def test_bytes_and_seconds_are_those_of_the_closed_forms():
    explorer = CompressionExplorer()
    dense, one_bit = row(explorer, DENSE), row(explorer)
    assert dense["seconds"] == pytest.approx(collective_seconds("ring", 4, 4 * N, 5e-4, 1e-7))
    assert [dense["sent"], row(explorer, "qsgd")["sent"], one_bit["sent"]] == [
        156_732, 39_807, 11_046,
    ]  # fmt: skip
    assert row(explorer, "topk")["sent"] == 6_288
    coding = METHODS["one_bit"].coding
    assert one_bit["seconds"] == pytest.approx(2.6046e-3 + N * (coding[0] + 4 * coding[1]))
    explorer.method, explorer.how = "topk", "reduce_scatter"
    assert row(explorer)["sent"] == 2 * 3 / 4 * code_bytes("topk", N)
    lines = state(explorer)["lines"]
    at = lines["bandwidth"]["x"].index(explorer.bandwidth), lines["ranks"]["x"].index(4)
    for name in METHODS:
        for control, place in zip(("bandwidth", "ranks"), at, strict=True):
            drawn = lines[control]["y"][name][place]
            assert drawn == pytest.approx(row(explorer, name)["seconds"], rel=1e-3)


def test_the_link_decides_which_method_is_fastest():
    explorer = CompressionExplorer(bandwidth=1e6, n=10**6)
    slow = min(state(explorer)["rows"], key=lambda one: one["seconds"])["name"]
    explorer.bandwidth, explorer.alpha = 1e11, 0.0
    rows = state(explorer)["rows"]
    assert slow in ("topk", "topk_qsgd", "power")
    assert min(rows, key=lambda one: one["seconds"])["name"] == DENSE
    assert "nothing is faster than the dense ring" in state(explorer)["answer"]
    explorer.ranks = 1
    assert state(explorer)["answer"] == "One rank sends nothing."


def test_codes_meet_only_as_the_method_allows():
    explorer = CompressionExplorer()
    hows = {}
    for name, method in METHODS.items():
        explorer.method = name
        assert state(explorer)["error"] == "" and explorer.how in method.how
        offered = state(explorer)["form"][0][1]["options"]
        hows[name] = [how for how, _ in offered]
        assert hows[name] == [*method.how]
        linear = name == DENSE or compression.make(name).linear
        assert ("all_reduce" in hows[name]) == linear
    explorer.method = "one_bit"
    explorer.how = "all_reduce"
    assert "how='all_reduce': codes of one_bit cannot be summed" in state(explorer)["error"]
    assert row(explorer)["how"] == "all_gather"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("method", "zip", "method='zip' is unknown: use one of dense, fp16"),
        ("how", "ring", "how='ring' is unknown"),
        ("bits", 9, "bits=9 has to be a whole number from 2 to 8."),
        ("share", 0, "share=0 is unknown: use one of 0.001"),
        ("rank", 0, "rank=0 has to be a whole number from 1 to 4."),
        ("n", 10, "n=10 (gradients) has to be a whole number from 1000"),
        ("ranks", 65, "ranks=65 has to be a whole number from 1 to 64."),
        ("alpha", -1, "alpha=-1 has to be a number, 0 or more"),
        ("bandwidth", "wide", "bandwidth='wide' has to be a number, above 0"),
    ],
)
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = CompressionExplorer()
    before = state(explorer)
    assert says in kernel.ask(explorer, "change", values={name: value})["error"]
    assert says in state(explorer)["error"] and state(explorer)["rows"] == before["rows"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before
    with pytest.raises(ValueError):
        CompressionExplorer(**{name: value})


@pytest.mark.parametrize("name", [name for name in METHODS if name != DENSE])
def test_the_stored_variance_is_what_coding_gaussian_values_measures(name):
    for value, stored in METHODS[name].variance.items():
        code = compression.make(name, **options(name, {METHODS[name].option: value}))
        assert stored == pytest.approx(compression.variance(code, N), rel=0.1, abs=1e-9), value


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
@pytest.mark.parametrize(
    ("name", "how", "ragged"),  # pieces of a code are a little longer than the code
    [
        (DENSE, "all_reduce", 0.002),
        ("fp16", "all_reduce", 0.002),
        ("qsgd", "all_gather", 0),
        ("topk", "all_gather", 0),
        ("one_bit", "reduce_scatter", 0.07),
        ("power", "all_reduce", 0.002),
    ],
)
def test_a_run_sends_and_takes_what_is_predicted_and_is_shown_again(name, how, ragged):
    explorer = CompressionExplorer(name, how=how, ranks=3, n=2_000, bandwidth=1e8)
    explorer.run()
    run = state(explorer)["run"]
    assert run["sent"] == pytest.approx(row(explorer)["sent"], rel=ragged)
    assert run["seconds"] == pytest.approx(row(explorer)["seconds"], rel=0.01)
    assert f"of {STEPS} exchanges" in run["summary"][0]
    explorer.n = 3_000
    assert state(explorer)["run"] is None and explorer.measured is None
    explorer.n = 2_000
    assert state(explorer)["run"] == run
    page = json.loads(explorer.saved_state()["pages"])[0]
    assert page["state"]["run"] == run and page["controls"]["method"] == name


def test_what_cannot_be_run_here_says_why():
    explorer = CompressionExplorer(ranks=9)
    assert state(explorer)["long"] == "8 ranks can be run here: choose as many, or fewer."
    explorer.run()
    assert state(explorer)["run"]["error"] == state(explorer)["long"]
    explorer.ranks, explorer.n, explorer.bandwidth = 8, 10**8, 1e6
    assert "choose fewer gradients" in state(explorer)["long"]
