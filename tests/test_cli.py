"""The command: what a run prints and saves, the page that `show` writes, errors of a bad line."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

import numpy as np
import pytest
import torch

from dlviz import Trace, datasets, metrics
from dlviz.analysis.axes import axes
from dlviz.analysis.messages import collective_bytes
from dlviz.cli import main, run
from dlviz.cli.tasks import TASKS, Passes
from dlviz.cli.words import size_of
from dlviz.datasets import digits
from dlviz.models import MLP, accuracy, train
from dlviz.parallel import STRATEGIES, update_rules
from dlviz.parallel.data import ddp

RUN = ["run", "ddp", "--ranks", "2", "--steps", "3"]
LONG = 300 * "x"  # no file can be called so


@pytest.fixture
def trace(tmp_path) -> Path:
    """A trace file of two ranks: rank 0 computes and sends, rank 1 receives."""
    span = {"lane": "compute", "wall_start": 0.0, "wall_end": 1.0, "start": 0.0, "end": 1.0}
    later = {"lane": "compute", "wall_start": 1.0, "wall_end": 1.5, "start": 1.0, "end": 1.5}
    spans = [
        {"rank": 0, "kind": "forward", "name": "<b>fc1</b>", **span},
        {"rank": 0, "kind": "send", "peer": 1, "flow": 0, **later},
        {"rank": 1, "kind": "recv", "peer": 0, "flow": 0, **later},
    ]
    times = {"sent": 1.0, "arrived": 1.4, "received": 1.5, "wall_sent": 1.0, "wall_received": 1.5}
    messages = [{"src": 0, "dst": 1, "nbytes": 8, "count": 2, "op": "copy", **times}]
    return Trace(spans, messages, meta={"clock": "wall"}).save(tmp_path / "two <ranks>.json.gz")


# -- run -----------------------------------------------------------------------------------------
def test_a_run_prints_its_results_and_saves_its_trace(tmp_path, capsys):
    out = tmp_path / "trace.json.gz"
    assert main([*RUN, "--out", str(out)]) == 0
    printed, _ = capsys.readouterr()
    trace = Trace.load(out)
    assert trace.meta["clock"] == "wall" and trace.meta["ranks"] == 2
    assert {"forward", "backward", "update", "send"} <= set(trace.spans.kind)

    lines = printed.splitlines()
    assert lines[0].startswith("ddp on 2 ranks, digits, 3 steps of 64 images: ")
    assert re.split(r" {2,}", lines[2].strip()) == [
        *("rank", "compute", "exposed communication", "idle", "sent")
    ]
    cells = [re.split(r" {2,}", line.strip()) for line in lines[3:5]]
    first, last = (trace.only(kind="phase", step=step).spans for step in (0, 2))
    window = last.end.max() - first.start.min()  # what went before the first step is left out
    shares = metrics.breakdown(trace)
    for rank, (number, compute, exposed, idle, sent) in enumerate(cells):
        assert int(number) == rank
        work = shares["compute"][rank] + shares["update"][rank]
        assert compute == f"{1e3 * work:.1f} ms"
        times = [float(cell.removesuffix(" ms")) for cell in (compute, exposed, idle)]
        assert sum(times) == pytest.approx(1e3 * window, abs=0.2)
        assert 0 < times[1] < 1e3 * shares["communication"][rank]
        assert sent == f"{metrics.bytes_sent(trace)[rank] / 1e3:.1f} KB"

    model = MLP()
    losses = train(model, digits("train"), steps=3)
    assert lines[6].split() == ["rule", "sgd", "at", "a", "rate", "of", "0.5"]
    assert f" {1e3 * metrics.seconds_per_step(trace):.1f} ms in the median" in lines[7]
    assert f"{losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last" in lines[8]
    assert f"{accuracy(model, *digits('test')):.1%} of the test images" in lines[9]
    assert lines[10].startswith(f"{out}  {len(trace.spans):,} spans, {len(trace.messages):,} mess")


def test_ddp_has_several_buckets_in_flight_and_naive_has_none(tmp_path, capsys):
    traces = {}
    for strategy in ("ddp", "naive"):
        out = tmp_path / f"{strategy}.json"
        line = ["run", strategy, "--ranks", "2", "--steps", "1", "--paced", "--out", str(out)]
        assert main(line) == 0
        assert capsys.readouterr().out.startswith(f"{strategy} on 2 ranks, digits, 1 step of ")
        traces[strategy] = Trace.load(out)
    assert {trace.meta["clock"] for trace in traces.values()} == {"paced"}
    assert set(traces["ddp"].spans.bucket) == {-1, 0, 1, 2}
    assert "comm" in traces["ddp"].spans.lane and "comm" not in traces["naive"].spans.lane
    sent = [metrics.bytes_sent(trace) for trace in traces.values()]
    np.testing.assert_allclose(*sent, rtol=0.01)  # the same gradients, flags and counts apart


def test_a_slow_rank_and_a_rule_leave_a_trace_that_show_draws(tmp_path, capsys):
    out = tmp_path / "t.json.gz"
    line = ["run", "ddp", "--ranks", "3", "--steps", "3", "--rule", "adam", "--slow", "2:3"]
    assert main([*line, "--lr", "0.01", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "rank 2 takes 3x as long" in printed and "adam at a rate of 0.01" in printed
    trace = Trace.load(out)
    assert trace.meta["clock"] == "paced"
    first, _, last = metrics.busy(trace.only(step=range(3)))
    assert last == pytest.approx(3 * first, rel=1e-6)
    assert main(["show", str(out), "--no-open"]) == 0
    assert tmp_path.joinpath("t.html").exists()


def test_parts_of_a_model_are_summarised_as_one_with_the_bytes_that_they_sent(tmp_path, capsys):
    out = tmp_path / "t.json.gz"
    line = ["run", "model", "--ranks", "2", "--steps", "3", "--lr", "0.5", "--out", str(out)]
    assert main(line) == 0
    model, printed = MLP(), capsys.readouterr().out
    train(model, digits("train"), steps=3)
    assert f"{accuracy(model, *digits('test')):.1%} of the test images" in printed
    assert re.search(rf"^bytes of activations +{3 * 64 * 128 * 4}$", printed, re.M)
    assert re.search(r"^bytes of parameters +0$", printed, re.M)
    assert main(["show", str(out), "--no-open"]) == 0


def test_offloading_prints_bytes_of_both_directions_peaks_and_accuracy(capsys):
    model = sum(p.nbytes for p in MLP().parameters())
    assert main(["run", "offload", "--ranks", "2", "--steps", "3", "--how", "stream"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^bytes down +{3 * model}$", printed, re.M)
    for name in ("bytes up", "device peak", "host peak", "layers on device", "accuracy"):
        assert re.search(rf"^{name} +\d", printed, re.M), name


def test_zero_prints_what_each_sent_and_what_a_rank_holds_at_the_peak(capsys):
    line = ["run", "zero", "--ranks", "2", "--steps", "3", "--rule", "adam", "--stage"]
    found = {}
    for stage in "13":
        assert main([*line, stage]) == 0
        said = capsys.readouterr().out
        peak = re.search(r"^peak +(.*)$", said, re.M)
        assert peak and " sent " in said and "accuracy" in said
        found[stage] = re.search(r"([\d.]+) KB parameters", peak[1])
    assert [float(each[1]) for each in found.values() if each] == [104.5, 52.2]


def test_the_summary_of_a_language_model_has_the_entropy_of_its_text(capsys):
    line = ["run", "late_all_reduce", "--ranks", "2", "--steps", "3", "--model", "lstm"]
    assert main([*line, "--rule", "adagrad"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("late_all_reduce on 2 ranks, sentences, 3 steps of 64 sentences: ")
    floor = f"which no model gets below, is {datasets.entropy_per_token():.3f}"
    assert "nats per target token" in printed and floor in printed


def test_a_transformer_cut_over_ranks_says_what_each_sent_and_held(tmp_path, capsys):
    out = tmp_path / "t.json.gz"
    line = ["run", "tensor", "--ranks", "2", "--steps", "2", "--model", "transformer"]
    assert main([*line, "--sequence-parallel", "--clip", "1", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("tensor on 2 ranks, sentences, 2 steps of 64 sentences: ")
    trace = Trace.load(out)
    found = zip(metrics.bytes_sent(trace), metrics.peak_memory(trace), strict=True)
    rows = [re.split(r" {3,}", row) for row in printed.splitlines()[2:5]]
    assert rows[0][-2:] == ["sent", "held"]
    assert [row[-2:] for row in rows[1:]] == [[size_of(a), size_of(b)] for a, b in found]
    assert re.search(r"^step +\d+\.\d ms in the median$", printed, re.M)
    assert re.search(r"^loss +3\.\d+ nats per target token in the first step", printed, re.M)
    assert main(["show", str(out), "--no-open"]) == 0


@pytest.mark.parametrize("strategy", ["spatial", "channel_filter", "cnn_hybrid"])
def test_a_net_whose_convolutions_are_cut_shows_timeline_traffic_and_memory(
    strategy, tmp_path, capsys
):
    out = tmp_path / "t.json.gz"
    line = ["run", strategy, "--ranks", "4", "--steps", "2", "--rule", "adam", "--out", str(out)]
    assert main(line) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{strategy} on 4 ranks, digits, 2 steps of 64 images: ")
    trace = Trace.load(out)
    rows = [re.split(r" {3,}", row.strip()) for row in printed.splitlines()[2:7]]
    assert rows[0][4] == "sent" and rows[0][-1] == "held"
    found = zip(metrics.bytes_sent(trace), metrics.peak_memory(trace), strict=True)
    assert [(row[4], row[-1]) for row in rows[1:]] == [(size_of(a), size_of(b)) for a, b in found]
    assert re.search(
        r"^peak +[\d.]+ [KM]B parameters, .* activations, .* communication", printed, re.M
    )
    assert re.search(r"^loss +2\.\d+ in the first step, .*\naccuracy +\d", printed, re.M)
    assert main(["show", str(out), "--no-open"]) == 0


@pytest.mark.slow
def test_one_command_trains_on_a_mesh_of_eight_ranks_and_says_what_each_axis_sent(tmp_path, capsys):
    """The placement is the order in --mesh. Two blocks, h = 64, 64 positions, V padded to 48; a
    step of 64 rows of 52 tokens: 32 a replica, 8 a microbatch."""
    out = tmp_path / "t.json.gz"
    line = "run 3d --ranks 8 --mesh pp=2,dp=2,tp=2 --steps 2 --microbatches 4 --schedule gpipe"
    assert main([*line.split(), "--out", str(out)]) == 0
    printed, trace = capsys.readouterr().out, Trace.load(out)
    trace.validate()
    assert printed.startswith("3d on 8 ranks, sentences, 2 steps of 64 sentences: ")
    assert re.search(r"^step +\d+\.\d ms in the median$", printed, re.M)
    assert re.search(r"^loss +\d\.\d+ nats per target token in the first step", printed, re.M)

    found, held = axes(trace), metrics.peak_memory(trace)
    assert [*found] == ["pp", "dp", "tp"]
    assert found["pp"].groups == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert found["dp"].groups == ((0, 2), (1, 3), (4, 6), (5, 7))
    rows = [re.split(r" {3,}", row.strip()) for row in printed.splitlines()[2:11]]
    set_up = collective_bytes(trace)
    assert rows[0][4:] == ["sent", "along pp", "along dp", "along tp", "held"]
    for rank, row in enumerate(rows[1:]):
        sent = [metrics.bytes_sent(trace)[rank], *(axis.sent[rank] for axis in found.values())]
        assert row[0] == str(rank) and sent[0] == sum(sent[1:]) + set_up[rank]
        assert row[4:] == [size_of(nbytes) for nbytes in (*sent, held[rank])]

    assert (metrics.busy(trace) > 0).all()
    h, steps, microbatches, tokens = 64, 2, 4, 8 * 52
    x = 4 * tokens * h  # bytes of a microbatch's activations, float32
    first, last = np.array([1] * 4 + [0] * 4), np.array([0] * 4 + [1] * 4)  # stages
    assert (found["pp"].forward == steps * microbatches * x * first).all()
    assert (found["pp"].backward == steps * microbatches * x * last).all()
    tied, loss = 4 * 48 // 2 * h, 8  # gradient of the embedding's shard; the mean, in float64
    sent = steps * (microbatches * x + tied + loss * last)
    assert (found["pp"].sent == sent).all()

    # Of 2 ranks each sends as much as it all-reduces: for a block 4 times x, for the embedding's
    # output and the gradient of the logits' input once; three numbers a token for the loss.
    calls = 5 * x + 3 * 4 * tokens * last
    assert (found["tp"].sent == steps * microbatches * calls).all()

    block = (12 * h * h + 7 * h) // 2 + 6 * h  # on both ranks: norms, biases after the all-reduce
    numbers = 48 // 2 * h + 64 * h * first + block + 2 * h * last  # the last stage has a norm
    layers = 1 + first + 16 + 2 * last  # parameters: of each a flag rides along, of a bucket one
    buckets = len({*trace.only(kind="collective").spans.bucket.tolist()} - {-1})
    assert buckets > 1 and (found["dp"].sent == steps * 4 * (numbers + layers + buckets)).all()


def test_on_a_mesh_the_model_has_no_values_until_each_rank_draws_its_part(monkeypatch):
    given = {}

    def launched(options, train, args, chosen):
        given[options.strategy] = {p.is_meta for p in args[0].parameters()}

    monkeypatch.setattr(run, "launched", launched)
    for line in ("3d --mesh pp=2,tp=2", "tensor --model transformer"):
        assert main(["run", *line.split()]) == 1
    assert given == {"3d": {True}, "tensor": {False}}


def test_a_strategy_brings_its_arguments_and_its_results(capsys, monkeypatch):
    def another(comm, model, batches, rule, *, loss, every: int, share: float | None = None):
        """Counts."""
        return {"losses": [1.0], "state": MLP().state_dict(), "dropped_shards": every * share}

    places = STRATEGIES._places | {"another": "data.ddp.another"}
    monkeypatch.setattr(ddp, "another", another, raising=False)
    monkeypatch.setattr(STRATEGIES, "_places", places)
    monkeypatch.setitem(STRATEGIES.lines, "another", "counts")
    line = ["run", "another", "--ranks", "1", "--every", "4", "--share", "0.5"]
    assert main(line) == 0
    assert re.search(r"^dropped shards +2\.0$", capsys.readouterr().out, re.M)


def test_the_lists_that_help_shows_are_those_of_the_package():
    assert run.RULES == update_rules.NAMES
    assert run.DATA.keys() == TASKS.keys()
    assert all(task.rates.keys() == set(update_rules.NAMES) for task in TASKS.values())


def test_one_rank_and_no_file_are_fine(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["run", "naive", "--ranks", "1", "--steps", "1"]) == 0
    assert capsys.readouterr().out.startswith("naive on 1 rank, digits, 1 step of 64 images: ")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_says_why_and_saves_the_trace_until_then(tmp_path, capsys, monkeypatch):
    def breaks(comm, *args, **kwargs):
        with comm.span("forward"):
            pass
        raise ArithmeticError("lost count")

    monkeypatch.setattr(ddp, "train", breaks)
    out = tmp_path / "trace.json"
    assert main([*RUN, "--out", str(out)]) == 1
    printed, said = capsys.readouterr()
    assert printed == ""
    assert re.match(r"dlviz: RankError: rank [01] raised ArithmeticError: lost count\n", said)
    assert said.splitlines()[-1] == f"dlviz: the trace until then is in {out}"
    assert Trace.load(out).meta["outcome"] == "failed"
    assert main([*RUN]) == 1, "and without a file"


def test_a_machine_that_is_too_fast_for_this_computer_is_a_line_not_a_python_warning(
    capsys, monkeypatch
):
    def slow(comm, *args, **kwargs):
        with comm.compute("forward", seconds=0.002):
            torch.randn(900, 900) @ torch.randn(900, 900)
        return {"losses": [1.0], "state": MLP().state_dict()}

    monkeypatch.setattr(ddp, "train", slow)
    assert main([*RUN, "--paced"]) == 0
    _, said = capsys.readouterr()
    assert said.startswith("dlviz: ") and "Warning" not in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("fly", "invalid choice: 'fly' (choose from"),
        ("run", "the following arguments are required: STRATEGY"),
        ("run gpipe", "argument STRATEGY: invalid choice: 'gpipe'"),
        ("run ddp --ranks 0", "argument --ranks: '0' is not a whole number from 1 up"),
        ("run ddp --ranks 2.5", "argument --ranks: '2.5' is not a whole number from 1 up"),
        ("run ddp --ranks 99999", "--ranks 99999 are more than this machine can hold"),
        ("run ddp --steps none", "argument --steps: 'none' is not a whole number from 1 up"),
        ("run ddp --rule faster", "argument --rule: invalid choice: 'faster' (choose from"),
        ("run ddp --model lstm --data digits", "--model lstm is trained on sentences."),
        ("run tensor --model lstm --ranks 1 --steps 1", "layer 0, a _Tokens, cannot be cut over"),
        ("run 3d", "the following arguments are required: --mesh"),
        ("run 3d --mesh dp=2,ep=2", "argument --mesh: 'dp=2,ep=2' is not a mesh: give the length"),
        ("run 3d --mesh dp=2,dp=2", "argument --mesh: 'dp=2,dp=2' is not a mesh: give the length"),
        ("run 3d --mesh dp", "as in dp=2,pp=2,tp=2, the axis whose ranks are neighbours last"),
        ("run 3d --mesh tp=4 --model mlp", "3d trains a transformer: leave out --model."),
        ("run 3d --mesh tp=4 --dp 1", "--dp 1 (its own options are --mesh, --schedule, --microb"),
        ("run 3d --ranks 1 --mesh dp=3,tp=2", "--mesh pp=1,dp=3,tp=2 has 6 places for"),
        ("run 3d --ranks 1 --mesh tp=0", "tp=0 is no length of an axis"),
        ("run ddp --sequence-parallel", "unrecognized arguments: --sequence-parallel (its own opt"),
        ("run ddp --slow 2", "argument --slow: '2' is not RANK:FACTOR: 2:3 makes rank 2 three"),
        ("run ddp --slow 1:0", "argument --slow: '1:0' is not RANK:FACTOR"),
        ("run ddp --slow 4:2", "--slow 4:2: ranks are 0 to 3 here."),
        ("run central --bucket-bytes 9", "unrecognized arguments: --bucket-bytes 9 (its own opt"),
        ("run ddp --bucket-bytes many", "argument --bucket-bytes: invalid int value: 'many'"),
        ("run ddp --ranks 1 --all-reduce star", "--all-reduce star is not known: use 'backend',"),
        ("run ddp --data imagenet", "'imagenet' (choose from 'digits', 'sentences')"),
        ("run ddp --timeout 0", "--timeout 0.0 is no time to wait"),
        ("run federated --ranks 2 --private -1", "--private -1.0 is not a noise level"),
        ("run federated --ranks 2 --clients 0", "--clients 0"),
        ("run ddp --device abacus", "--device abacus is not known: use 'auto', 'cpu' or 'cuda'."),
        ("run ddp --out trace.txt", "trace.txt has the wrong ending: use .json.gz or .json."),
        ("run ddp --out none/t.json", "none/t.json cannot be written: there is no folder none."),
        ("show", "the following arguments are required: TRACE"),
        ("show none.json", "none.json cannot be read: No such file or directory."),
        (f"run ddp --out {LONG}.json", ".json cannot be written (File name too long): choose"),
        (f"run federated --out {LONG}.json", ".json cannot be written (File name too long): "),
        (f"show none.json --out {LONG}.html", ".html cannot be written (File name too long): "),
        ("show .", ". cannot be read: Is a directory."),
        ("doctor now", "unrecognized arguments: now"),
    ],
)
def test_a_bad_line_gets_one_sentence_and_exit_code_2(line, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    printed, said = capsys.readouterr()
    assert printed == "" and said.startswith("dlviz") and says in said
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_is_no_traceback(capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("dlviz.cluster.launch", interrupted)
    monkeypatch.setattr("dlviz.launch", interrupted)
    assert main(RUN) == 130
    assert capsys.readouterr().err == "dlviz: interrupted\n"


def test_an_interrupt_that_comes_while_a_strategy_is_loaded_is_no_traceback(capsys, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("dlviz.parallel.strategies.import_module", interrupted)
    assert main(["run", "ddp", "--lr", "0.1"]) == 130
    assert capsys.readouterr().err == "dlviz: interrupted\n"


def test_an_interrupt_while_torch_is_loaded_ends_the_command_and_its_helpers_at_once():
    """The fork server would load torch to the end before it looked whether anybody is left."""
    take = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{take}; import sys; from dlviz.__main__ import main; sys.exit(main())"
    run, pipe = [sys.executable, "-c", code, *RUN], subprocess.PIPE
    command = subprocess.Popen(run, stderr=pipe, text=True, start_new_session=True)
    proc = Path("/proc")
    children = proc / f"{command.pid}/task/{command.pid}/children"
    while len(helpers := children.read_text().split()) < 2:  # a resource tracker, the fork server
        time.sleep(0.01)
    os.killpg(command.pid, signal.SIGINT)
    assert command.communicate() == (None, "dlviz: interrupted\n") and command.returncode == 130
    time.sleep(0.5)  # it took 3 s
    for helper in helpers:
        stat = proc / helper / "stat"
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_time_of_a_run_begins_with_the_command_and_its_batches_are_cut_in_the_ranks(capsys):
    """A list of as many batches would take longer, and 6 GB."""
    began = time.monotonic()
    assert main(["run", "ddp", "--ranks", "1", "--steps", "400000", "--timeout", "4"]) == 1
    assert time.monotonic() - began < 20
    said = capsys.readouterr().err
    assert "dlviz: RunTimeout: the run took longer than --timeout 4 s" in said
    assert 'File "' not in said
    given = digits("train")
    cut = pickle.loads(pickle.dumps(Passes(*given, 64, 70)))
    assert len(cut) == len(cut[:]) == 70
    for batch, other in zip(cut, datasets.batches(*given, 64, steps=70), strict=True):
        assert all(map(torch.equal, batch, other))


# -- show ----------------------------------------------------------------------------------------
def test_show_writes_a_page_beside_the_trace_and_opens_it(trace, capsys, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["show", str(trace)]) == 0
    page = trace.with_name("two <ranks>.html")
    assert opened == [page.as_uri()] and page.exists()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 and said[0].startswith(f"{page}  the timeline of {trace} (3 spans, 1 me")

    other = trace.with_name("page.html")
    assert main(["show", str(trace), "--out", str(other), "--no-open"]) == 0
    assert other.exists() and len(opened) == 1


DRAWN = ("ddp", "async_server", "gossip", "model", "tensor", "3d")  # `make sweep` has all


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in DRAWN else pytest.mark.sweep) for n in STRATEGIES],
)
def test_the_trace_of_every_strategy_is_drawn(name, tmp_path):
    out = tmp_path / "t.json.gz"
    mesh = ["--mesh", "pp=2"] if name == "3d" else []
    assert main(["run", name, "--ranks", "2", "--steps", "2", "--out", str(out), *mesh]) == 0
    assert main(["show", str(out), "--no-open"]) == 0
    trace, page = Trace.load(out), out.with_name("t.html").read_text()
    given = re.search(r'id="state">(.*?)</script>', page, re.S)[1]
    drawn = json.loads(json.loads(given)["state"])
    assert {row["rank"] for row in drawn["rows"]} == {0, 1}
    assert drawn["count"] == len(trace.spans) and {"forward", "update"} <= {*trace.spans.kind}
    assert drawn["messages"]["shown"] == len(trace.messages)


def test_show_draws_hosts_as_groups_of_rows(tmp_path, capsys):
    spans = [{"rank": rank, "kind": "forward", "start": 0.0, "end": 1.0} for rank in range(3)]
    meta = {"clock": "wall", "ranks": 3, "hosts": {"host-b": [1], "host-a": [0, 2]}}
    Trace(spans, meta=meta).save(tmp_path / "t.json")
    assert main(["show", str(tmp_path / "t.json"), "--no-open"]) == 0
    assert "(3 spans, 0 messages on 2 hosts, " in capsys.readouterr().out
    given = re.search(r'id="state">(.*?)</script>', (tmp_path / "t.html").read_text(), re.S)[1]
    drawn = json.loads(json.loads(given)["state"])
    names = [own["label"] for own in drawn["rankGroups"]]
    rows = [(names[row["group"]], row["rank"]) for row in drawn["rows"]]
    assert rows == [("host-a", 0), ("host-a", 2), ("host-b", 1)]


def test_show_without_a_display_names_the_page(trace, capsys, monkeypatch):
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", lambda address: pytest.fail("there is no display"))
    assert main(["show", str(trace)]) == 0
    assert "There is no display here: open the page" in capsys.readouterr().out


def damaged(kind: str, trace: Path) -> bytes:
    whole = json.loads(gzip.decompress(trace.read_bytes()))
    events = [event for event in whole["traceEvents"] if event["ph"] == "X"]
    match kind:
        case "truncated gzip":
            return trace.read_bytes()[:-40]
        case "truncated JSON":
            return gzip.decompress(trace.read_bytes())[:300]
        case "no JSON":
            return b"rank,time\n0,1\n"
        case "another program's":
            return b'{"traceEvents": []}'
        case "a picture":
            return b"\x89PNG\r\n\x1a\n\x00\xff\xfe"
        case "empty":
            return b""
        case "NaN":
            events[0]["ts"] = float("nan")
        case "overlapping":
            events[1]["ts"] -= 200_000.0
    return json.dumps(whole).encode()


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("truncated gzip", "its gzip data is cut short or damaged"),
        ("truncated JSON", "cut short"),
        ("no JSON", "it is not JSON"),
        ("another program's", "dlviz did not write it"),
        ("a picture", "binary data"),
        ("empty", "it is empty."),
        ("NaN", "NaN"),
        ("overlapping", "overlap"),
    ],
)
def test_a_bad_trace_gets_one_sentence_and_no_page(kind, says, trace, capsys):
    bad = trace.with_name("bad.json")
    bad.write_bytes(damaged(kind, trace))
    assert main(["show", str(bad)]) == 2
    printed, said = capsys.readouterr()
    assert printed == "" and len(said.splitlines()) == 1
    assert said.startswith(f"dlviz: {bad} cannot be read as a trace: ") and says in said
    assert not bad.with_name("bad.html").exists()


def test_a_page_that_cannot_be_written_is_named(trace, capsys, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    page = trace.with_name("page.html")
    line = ["show", str(trace), "--no-open", "--out"]
    assert main([*line, "page.pdf"]) == 2
    assert capsys.readouterr().err == "dlviz: --out page.pdf has the wrong ending: use .html.\n"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        assert main([*line, str(page)]) == 2
    says = f"dlviz: {page} cannot be written: No space left on device.\n"
    assert capsys.readouterr().err == says
    page.mkdir()
    assert main([*line, str(page)]) == 2
    says = f"dlviz: {page} cannot be written (Is a directory): choose another file with --out.\n"
    assert capsys.readouterr().err == says


@pytest.mark.slow
def test_the_page_shows_its_bars_with_no_network(trace, browser, capsys):
    assert main(["show", str(trace), "--no-open"]) == 0
    context = browser.new_context(offline=True, bypass_csp=True)
    asked, said = [], []

    def only_files(route):
        asked.append(route.request.url)
        route.continue_() if asked[-1].startswith("file://") else route.abort()

    context.route("**/*", only_files)
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    address = trace.with_name("two <ranks>.html").as_uri()
    page.goto(address)
    page.wait_for_selector(".dlv[data-draws]")
    page.get_by_role("button", name="show a table of the spans in view").click()
    page.wait_for_selector("table caption >> text=3 spans in view")
    text = page.locator("body").inner_text()
    title = page.title()
    context.close()
    assert text.count("500 ms") >= 2 and "1 s" in text  # how long its spans took
    assert "rank 0" in text and "rank 1" in text
    assert title == "two <ranks>.json.gz - dlviz"
    assert asked == [address]
    assert said == []


# -- as a process --------------------------------------------------------------------------------
def test_help_and_show_load_no_torch(trace):
    report = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    for line, absent in (
        (["--help"], {"torch", "numpy", "plotly", "IPython"}),
        (["run", "--help"], {"torch", "numpy", "plotly", "IPython"}),
        (["show", str(trace), "--no-open"], {"torch", "matplotlib", "pandas"}),
    ):
        code = f"import sys; from dlviz.cli import main; main({line!r}); {report}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        loaded = set(done.stdout.splitlines()[-1].split())
        assert done.returncode == 0 and "dlviz" in loaded and not loaded & absent


def test_help_names_every_command_and_option(capsys):
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(re.search(rf"^ +{name} +\w", said, re.M) for name in ("run", "show", "doctor"))
    assert main(["run", "--help"]) == 0
    said = capsys.readouterr().out
    for option in ("ranks", "model", "data", "rule", "steps", "out", "paced", "slow", "device"):
        assert f"--{option}" in said
    assert all(f"{name} " in said and line in said for name, line in STRATEGIES.lines.items())


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("ddp", {"--bucket-bytes INT": "65536", "--all-reduce STR": "ring"}),
        ("3d", {"--mesh MESH": "as in dp=2,pp=2,tp=2 (required)", "--sequence-parallel": "off"}),
        ("federated", {"--rounds INT": "10", "--private FLOAT": "none", "--seed INT": "0"}),
    ],
)
def test_help_after_a_strategy_shows_its_own_options_and_what_they_are(strategy, options, capsys):
    assert main(["run", strategy, "--ranks", "2", "--help"]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert said.startswith(f"usage: dlviz run {strategy} ") and "--paced" not in said
    assert all(f"{option} {default}" in said for option, default in options.items())


@pytest.mark.parametrize(
    "command", [[sys.executable, "-m", "dlviz"], [Path(sys.executable).with_name("dlviz")]]
)
def test_module_and_script_are_the_command(command):
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "dlviz 0.1.0\n", "")
    done = subprocess.run([*command, "show", "none.json"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("dlviz: none.json cannot be read")


@pytest.mark.slow
def test_a_run_in_a_terminal_shows_its_progress(tmp_path):
    line = ["run", "ddp", "--ranks", "2", "--steps", "10", "--paced", "--out", "trace.json.gz"]
    run = [sys.executable, "-m", "dlviz", *line]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "training: " in done.stderr and "training" not in done.stdout
    assert Trace.load(tmp_path / "trace.json.gz").meta["outcome"] == "completed"
