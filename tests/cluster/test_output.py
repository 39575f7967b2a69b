"""What ranks print: shown as it comes, line by line with its rank, and kept whole."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
import textwrap
import time
from itertools import groupby

import pytest
import torch
from timing import attempts

from dlviz import DeadlockError, RankError, launch
from dlviz.cluster.parent import output
from dlviz.cluster.parent.output import SHOWN, Output

MORE = "\n... more was printed: run.output holds all of it\n"


# -- Output ----------------------------------------------------------------------------------------
def test_lines_are_shown_whole_with_their_rank(capsys):
    shown = Output(2)
    shown.add(0, b"one\ntw")
    shown.add(1, b"other\n")
    assert capsys.readouterr().out == "[rank 0] one\n[rank 1] other\n"
    shown.add(0, b"o\n\n")
    assert capsys.readouterr().out == "[rank 0] two\n[rank 0] \n"
    shown.add(1, "né".encode()[:2])
    shown.add(1, "né".encode()[2:])
    assert capsys.readouterr().out == ""
    shown.flush()
    assert capsys.readouterr().out == "[rank 1] né\n"
    shown.flush()
    assert capsys.readouterr().out == ""
    assert shown.texts() == ["one\ntwo\n\n", "other\nné"]


@pytest.mark.parametrize("line", [b"0123456789" * 7 + b"\n", b"x" * 70], ids=["lines", "one line"])
def test_what_is_shown_is_capped_and_what_is_kept_is_not(line, capsys):
    shown = Output(1)
    for _ in range(10_000):
        shown.add(0, line)
    shown.flush()
    out = capsys.readouterr().out
    assert out.endswith(MORE) and out.count(MORE) == 1
    assert len(out) == SHOWN + len(MORE)
    assert shown.texts() == [(line * 10_000).decode()]


def test_a_line_without_end_takes_no_time_that_grows_with_its_square():
    for attempt in attempts():
        shown, began = Output(1), time.process_time()
        for _ in range(1600):
            shown.add(0, b"x" * 65536)  # 100 MB
        took = time.process_time() - began
        with attempt:
            assert took < 2


def test_bytes_that_are_no_text_are_shown_as_such(monkeypatch):
    shown = Output(1)
    console = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", console)
    shown.add(0, b"\xff\x00 caf\xc3\xa9\n")
    console.seek(0)
    assert console.read() == "[rank 0] \\ufffd\x00 caf\\xe9\n"
    monkeypatch.setattr(sys, "stdout", None)
    shown.add(0, b"nobody sees this\n")
    assert shown.texts() == ["\ufffd\x00 café\nnobody sees this\n"]


# -- ranks that print ------------------------------------------------------------------------------
def test_all_that_a_rank_prints_comes_in_order(capfd):
    def worker(comm):
        libc = ctypes.CDLL(None)
        if comm.rank == 1:
            comm.barrier()
        print("out")
        print("err", file=sys.stderr)
        sys.stdout.buffer.write(b"bytes \xfe\n")
        sys.stdout.flush()
        os.system("echo child")
        print("Grüße \ud800")
        if comm.rank == 0:
            comm.barrier()
        libc.printf(b"from C\n")
        libc.fflush(None)
        print("no newline", end="")

    run = launch(worker, 2)
    text = "out\nerr\nbytes \ufffd\nchild\nGrüße \\ud800\nfrom C\nno newline"
    assert run.output == [text, text]
    shown = capfd.readouterr().out.splitlines()
    for rank in range(2):
        mine = [line for line in shown if line.startswith(f"[rank {rank}] ")]
        assert [line.partition("] ")[2] for line in mine] == text.splitlines()
    assert shown[:5] == [f"[rank 0] {line}" for line in text.splitlines()[:5]]


def test_output_of_c_code_that_was_never_flushed_is_kept():
    def worker(comm):
        ctypes.CDLL(None).printf(b"buffered in C")

    assert launch(worker, 1).output == ["buffered in C"]


@pytest.mark.parametrize("end", ["raise", "wait"])
def test_what_a_failed_rank_printed_is_kept_to_the_last_character(end):
    def worker(comm):
        print("so far", end="")
        ctypes.CDLL(None).printf(b", so good")
        if end == "raise":
            raise ValueError
        comm.recv(torch.zeros(1), src=1 - comm.rank)

    with pytest.raises((RankError, DeadlockError)) as caught:
        launch(worker, 2)
    assert "so far" in caught.value.output[caught.value.rank or 0]
    assert "so good" in caught.value.output[caught.value.rank or 0]


def test_output_is_shown_while_the_ranks_run(tmp_path):
    script = """
        import time
        import dlviz

        def worker(comm):
            print("hello")
            if comm.rank == 0:
                while not open("go").read():
                    time.sleep(0.01)
            comm.barrier()
            print("end")

        dlviz.launch(worker, 2)
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    (tmp_path / "go").write_text("")
    with subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        first = {process.stdout.readline() for _ in range(2)}
        (tmp_path / "go").write_text("now")
        rest = set(process.stdout)
    assert first == {"[rank 0] hello\n", "[rank 1] hello\n"}
    assert rest == {"[rank 0] end\n", "[rank 1] end\n"}


def test_ten_megabytes_are_kept_whole_and_shown_in_part(capfd):
    def worker(comm):
        if comm.rank == 0:
            for number in range(100_000):
                print(f"{number:099d}")
        print("last")

    run = launch(worker, 2)
    assert len(run.output[0]) == 10_000_005
    assert run.output[0].endswith("99999\nlast\n") and run.output[1] == "last\n"
    assert len(capfd.readouterr().out) == SHOWN + len(MORE)


def test_a_worker_may_close_or_replace_its_standard_output():
    def worker(comm):
        print("before")
        if comm.rank == 0:
            sys.stdout.close()
        else:
            sys.stdout = None
        return comm.rank

    run = launch(worker, 2)
    assert run.results == [0, 1] and run.output == ["before\n"] * 2


# -- progress --------------------------------------------------------------------------------------
def test_progress_of_all_ranks_is_one_bar(monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options):
            self.options, self.n, self.closed = options, 0, False
            bars.append(self)

        def update(self, steps):
            self.n += steps

        def close(self):
            self.closed = True

    monkeypatch.setattr(output, "tqdm", Bar)

    def worker(comm):
        for step in comm.progress(range(5), "training"):
            if step == 4:
                time.sleep(0.1)
            comm.barrier()
        comm.barrier()
        time.sleep(0.1)

    launch(worker, 2)
    (bar,) = bars
    assert bar.options["desc"] == "training" and bar.options["delay"] == 0.5
    assert (bar.total, bar.n, bar.closed) == (10, 10, True)


def test_progress_told_to_a_function_counts_the_starts_then_the_rank_that_is_last():
    def worker(comm):
        for step in comm.progress(range(4 - comm.rank), "training"):
            comm.barrier() if step == 0 else time.sleep(0.2 * comm.rank)

    told = []
    launch(worker, 2, progress=lambda *now: told.append(now))
    told = [now for now, _ in groupby(told)]
    starts = [now for now in told if now[0] is None]  # one that is soon over may not be told
    assert starts == told[: len(starts)] == sorted(starts, key=lambda now: now[1])
    assert {*starts} <= {(None, 0, 2), (None, 1, 2), (None, 2, 2)}
    assert {now[0] for now in told[len(starts) :]} == {"training"}
    done = [now[1] for now in told[len(starts) :]]
    assert done == sorted(done) and done[-1] <= 3 and {now[2] for now in told[-1:]} == {4}


@pytest.mark.parametrize("when", [None, "training"])
def test_what_the_told_function_raises_ends_the_run(when):
    class Enough(Exception):
        pass

    def tell(name, done, total):
        if name == when and done > 0:
            raise Enough

    def worker(comm):
        for _ in comm.progress(range(2), "training"):
            comm.barrier()
        time.sleep(60)

    with pytest.raises(Enough):
        launch(worker, 2, progress=tell)  # the check for leftovers sees the rest


def test_in_a_notebook_the_bar_is_a_line_that_leaves_nothing_behind(monkeypatch):
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(content)

    def display(content, raw, display_id):
        shown.append(content)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(output, "_in_notebook", lambda: True)
    bar = output._bar(4, desc="training")
    bar.delay = 0  # as if half a second were over
    bar.update(2)
    bar.refresh()
    bar.close()
    assert "training:  50%" in shown[0]["text/plain"]
    assert shown[-1] == {"text/html": ""}
    quick = output._bar(4, desc="training")
    quick.update(4)
    quick.close()
    assert shown[-1] == {"text/html": ""} and not any("100%" in str(one) for one in shown)
