"""The process that judges: nothing of the kernel's decides, and it ends with the kernel."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from courses import Assignment

from dlviz.grading.harness import judge
from dlviz.grading.harness.judge import ask

HERE = Path(__file__)
KERNEL = """
import json, os, signal, sys
import multiprocessing, numpy, torch
import dlviz.cluster, dlviz.grading.harness.check, dlviz.grading.harness.judge
from dlviz.grading.assignments.ddp import checks as ddp_checks

def right(parameters, most):
    print("cutting", most)
    buckets = []
    for p in reversed(parameters):
        if not buckets or sum(q.nbytes for q in buckets[-1]) + p.nbytes > most:
            buckets.append([])
        buckets[-1].append(p)
    return buckets

def wrong(parameters, most):
    return [[p] for p in parameters]

def slow(parameters, most):
    signal.pause()

def graded(program):
    [sys.modules.pop(name) for name in [*sys.modules] if name.startswith("dlviz.grading")]
    from dlviz.grading.assignments.ddp import checks as ddp_checks
    return ddp_checks.check_buckets(program, sizes=[(5, 72)])

def judges():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if "judge.serve()" in open(f"/proc/{pid}/cmdline").read():
                stat = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
                found += [int(pid)] * (int(stat[1]) == os.getpid())
        except OSError:
            pass
    return found

message = {"right": graded(right), "judges": judges()}
mlp = {"__name__": "__main__"}
exec(sys.argv[1], mlp)  # to its operators torch loads more than to others, once for all ranks
message["mlp"] = mlp["tensor_checks"].check_f(mlp["CopyToRanks"], sizes=[(2, 3, 4)])
message["mlp"] += mlp["tensor_checks"].check_bytes(mlp["ParallelMLP"], sizes=[(2, 3, 4, 10)])
right_to_all = lambda *given, **options: dlviz.cluster.Run([{}], [""], None, 0.0)
harness = dlviz.grading.harness
for module in (dlviz.cluster, harness.check, sys.modules["dlviz.grading.harness.sandbox"], dlviz):
    module.launch = right_to_all
dlviz.grading.harness.judge.ask = lambda *given: (3, "Right", "")
dlviz.grading.harness.check.Check.__call__ = lambda *given, **options: 3
ddp_checks.check_buckets = lambda *given, **options: 3
torch.equal = torch.allclose = numpy.array_equal = lambda *given, **options: True
multiprocessing.get_context = multiprocessing.Process = None
message["wrong"] = graded(wrong)
message["again"] = judges()
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    graded(slow)
except KeyboardInterrupt:
    message["interrupted"] = True
print(json.dumps(message))
"""


@pytest.mark.slow
def test_what_a_kernel_replaces_decides_nothing_and_its_judge_ends_with_it(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    mlp = Assignment("tensor_parallel_mlp").written({})
    done = subprocess.run(
        [sys.executable, "-c", KERNEL, mlp], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    message = json.loads(last)
    assert printed[0].endswith("cutting 72") and printed[1].startswith("Right, 3 of 3 points")
    assert (message["right"], message["mlp"], message["wrong"], message["interrupted"]) == (
        3,
        4,
        0,
        True,
    )
    assert len(message["judges"]) == 1 and message["again"] == message["judges"]
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{message['judges'][0]}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{message['judges'][0]}")
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody says who is behind a socket")
def test_a_process_in_the_judges_place_is_refused():
    address = Path(judge._address(os.getpid()))
    address.parent.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            with pytest.raises(RuntimeError, match=r"has taken the judge's place: restart"):
                ask(("dlviz.grading.assignments.ddp.checks", "check_buckets"), [print], [])
    finally:
        address.unlink()
        address.parent.rmdir()


def test_an_answer_that_does_not_know_the_nonce_is_refused(monkeypatch):
    here, there = socket.socketpair()
    monkeypatch.setattr(judge, "_connected", lambda: here)

    def answer():
        with there:
            for _ in range(3):
                judge._receive(there)
            judge._send(there, b"0" * judge.NONCE + b'{"points": 3, "text": "", "printed": ""}')

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(RuntimeError, match="not the judge's"):
        ask(("dlviz.grading.assignments.ddp.checks", "check_buckets"), [print], [])
    thread.join()


def test_what_cannot_be_sent_is_named():
    def program(parameters, most):
        return lock, parameters

    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"program, which uses lock.* cannot be sent"):
        ask(("dlviz.grading.assignments.ddp.checks", "check_buckets"), [program], [])


def test_programs_of_a_check_share_their_globals_and_are_unpacked_once():
    names: dict = {"__name__": "__main__"}
    exec("seen = []\ndef f(): seen.append(1)\ndef g(): return seen", names)
    data = judge._pickled([names["f"], names["g"]])
    f, g = (judge.unpacked(data, number, ()) for number in range(2))
    f()
    assert g() == [1] and names["seen"] == []
