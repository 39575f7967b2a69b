"""Ranks end like the user's own process: exit handlers, threads, and the exception itself."""

import atexit
import logging.handlers
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from test_ends import run_script

import dlviz
from dlviz.cluster.parent import supervise
from dlviz.cluster.recording import exceptions


# -- exit handlers ---------------------------------------------------------------------------------
class Owner:
    pass


def registers(comm, folder, how):
    for word in ("first", "second"):
        atexit.register(print, comm.rank, word)
    comm.owner = Owner()  # which lives until the end
    weakref.finalize(comm.owner, print, comm.rank, "finalized")
    atexit.register(lambda: (Path(folder) / f"ended-{comm.rank}").touch())
    thread = threading.Thread(target=lambda: (time.sleep(0.2), print(comm.rank, "thread")))
    thread.start()
    if how == "raises" and comm.rank == 0:
        raise ValueError("on purpose")
    if how == "exits" and comm.rank == 0:
        raise SystemExit(3)
    if how != "returns":
        comm.barrier()


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_what_is_registered_for_the_end_of_a_rank_is_done_then(tmp_path, how):
    def worker(comm):
        registers(comm, str(tmp_path), how)

    if how == "returns":
        run = dlviz.launch(worker, ranks=2)
        output = run.output
        assert {path.name for path in tmp_path.iterdir()} == {"ended-0", "ended-1"}
        for rank in range(2):
            lines = [line.split(maxsplit=1)[1] for line in output[rank].splitlines()]
            assert sorted(lines) == ["finalized", "first", "second", "thread"]
            assert lines[0] == "thread" and lines.index("second") < lines.index("first")
    else:
        with pytest.raises(dlviz.RankError) as error:
            dlviz.launch(worker, ranks=2)
        output = error.value.output or []
        assert "0 second\n" in output[0] and output[0].index("second") < output[0].index("first")
        assert (tmp_path / "ended-0").exists() and not (tmp_path / "ended-1").exists()
    assert "Exception" not in output[0]


def test_what_the_fork_server_has_registered_is_not_done_in_a_rank_but_logs_are_flushed(tmp_path):
    def worker(comm):
        log = logging.FileHandler(tmp_path / "log")
        logging.getLogger("here").addHandler(logging.handlers.MemoryHandler(100, target=log))
        logging.getLogger("here").error("one line")
        registry: Any = weakref.finalize
        return any(each.atexit for each in list(registry._registry))

    assert dlviz.launch(worker, ranks=1).results == [False]
    assert (tmp_path / "log").read_text() == "one line\n"


def test_an_exit_handler_that_fails_or_hangs_hides_neither_result_nor_error():
    def worker(comm, wrong):
        atexit.register(time.sleep, 100) if wrong else atexit.register(int, "a")
        if wrong:
            raise KeyError("the cause")
        return comm.rank

    run = dlviz.launch(worker, ranks=1, args=(False,))
    assert run.results == [0] and "Exception ignored in atexit callback" in run.output[0]
    begun = time.perf_counter()
    with pytest.raises(dlviz.RankError, match="KeyError: 'the cause'"):
        dlviz.launch(worker, ranks=1, args=(True,))
    assert time.perf_counter() - begun < 20


def test_an_exit_handler_that_waits_for_a_rank_that_has_finished_is_a_deadlock():
    def worker(comm):
        if comm.rank == 0:
            atexit.register(comm.recv, torch.ones(1), 1)

    with pytest.raises(dlviz.DeadlockError, match="rank 0 waits in recv from rank 1"):
        dlviz.launch(worker, ranks=2)


# -- threads ---------------------------------------------------------------------------------------
def test_a_thread_that_is_left_running_is_named_and_the_results_are_kept():
    def worker(comm):
        if comm.rank == 1:
            for name in ("heartbeat", "logger"):
                threading.Thread(target=time.sleep, args=(1000,), name=name).start()
        atexit.register(print, "ended")
        return comm.rank

    words = r"rank 1 has its result, and its thread 'heartbeat' \(and 1 more such\) was still run"
    with pytest.warns(RuntimeWarning, match=words):
        run = dlviz.launch(worker, ranks=2, timeout=3)
    assert run.results == [0, 1] and run.output == ["ended\n"] * 2
    assert run.trace.meta["left_running"] == {"1": ["heartbeat", "logger"]}


@pytest.mark.filterwarnings("ignore:rank . has its result")
def test_a_run_whose_workers_have_all_returned_does_not_wait_for_its_time_to_be_up():
    """But for threads that end soon it waits, and for a worker that is at work."""

    def worker(comm, ends, works):
        def write():
            time.sleep(1)
            print("written")

        threading.Thread(target=write).start()
        if not ends and comm.rank == 1:
            threading.Thread(target=time.sleep, args=(1000,), name="heartbeat").start()
        time.sleep(works if comm.rank == 0 else 0)
        return comm.rank

    for ends, works, least, most in ((False, 7, 12, 30), (True, 0, 1, 5)):
        began = time.perf_counter()
        run = dlviz.launch(worker, ranks=2, timeout=60, args=(ends, works))
        assert least <= time.perf_counter() - began < most
        assert run.results == [0, 1] and run.output == ["written\n"] * 2
        assert run.trace.meta.get("left_running") == (None if ends else {"1": ["heartbeat"]})


@pytest.mark.filterwarnings("ignore:rank 0 has its result")
def test_a_rank_at_work_still_makes_it_a_timeout_or_is_lost_beside_such_a_thread():
    def worker(comm):
        if comm.rank == 0:
            threading.Thread(target=time.sleep, args=(1000,)).start()
        else:
            time.sleep(1000)

    with pytest.raises(dlviz.RunTimeout, match=r"rank 1 is at .*sleep"):
        dlviz.launch(worker, ranks=2, timeout=3)
    run = dlviz.launch(worker, ranks=2, timeout=3, may_lose=(1,))
    assert list(run.lost) == [1] and run.trace.meta["left_running"].keys() == {"0"}


def test_a_rank_that_does_not_end_without_its_threads_either_is_a_timeout(monkeypatch):
    def worker(comm):
        threading.Thread(target=time.sleep, args=(1000,)).start()
        atexit.register(time.sleep, 1000)

    monkeypatch.setattr(supervise, "LEAVING", 1.0)
    with pytest.raises(dlviz.RunTimeout):
        dlviz.launch(worker, ranks=1, timeout=3)


# -- the exception itself --------------------------------------------------------------------------
class OwnError(Exception):
    def __init__(self, number):
        super().__init__(f"number {number}")
        self.number = number

    def __reduce__(self):
        return OwnError, (self.number,), {"__notes__": self.__notes__}


def test_the_ranks_exception_is_the_cause_with_its_own_causes_and_notes():
    def fail():
        wrong = OwnError(7)
        wrong.add_note("look here")
        raise wrong

    def worker(comm):
        try:
            try:
                [].remove(3)
            except ValueError as error:
                raise KeyError("key") from error
        except KeyError:
            fail()

    with pytest.raises(dlviz.RankError) as caught:
        dlviz.launch(worker, ranks=2)
    cause = caught.value.__cause__
    assert type(cause) is OwnError and cause.number == 7 and cause.__notes__ == ["look here"]
    assert cause.__cause__ is None and isinstance(cause.__context__, KeyError)
    assert isinstance(cause.__context__.__cause__, ValueError)


class Unreadable(Exception):
    def __init__(self, one, other):
        super().__init__(one)


class Large(Exception):
    def __str__(self):
        return "large"


def test_an_exception_that_cannot_travel_breaks_no_report():
    def locked():
        return ValueError("with a lock", threading.Lock())

    def ring():
        one, other = ValueError("one"), ValueError("other")
        one.__context__, other.__context__ = other, one
        return one

    def large():
        return Large(bytes(exceptions.LARGEST))

    def caused():
        error = ValueError("caused")
        error.__cause__ = locked()
        return error

    def worker(comm, make):
        raise make()

    for make in (locked, lambda: Unreadable(1, 2), large):
        with pytest.raises(dlviz.RankError, match="rank 0 raised") as caught:
            dlviz.launch(worker, ranks=1, args=(make,))
        assert caught.value.__cause__ is None and "Traceback" in str(caught.value.traceback)
    for make, words in ((ring, "one"), (caused, "caused")):
        with pytest.raises(dlviz.RankError, match=f"ValueError: {words}") as caught:
            dlviz.launch(worker, ranks=1, args=(make,))
        assert str(caught.value.__cause__) == words


def test_an_exception_class_of_a_script_is_the_scripts_own(tmp_path):
    done = run_script(
        tmp_path,
        """
        import dlviz

        class Mine(Exception):
            pass

        def worker(comm):
            raise Mine("here")

        if __name__ == "__main__":
            try:
                dlviz.launch(worker, ranks=1)
            except dlviz.RankError as error:
                print(isinstance(error.__cause__, Mine), error.__cause__)
        """,
    )
    assert done.stdout == "True here\n", done.stderr


def test_a_run_equals_itself_alone():
    one, other = (dlviz.launch(lambda comm: torch.ones(3), ranks=1) for _ in range(2))
    assert one == one and one != other and len({one, other}) == 2
