"""Where threads are, as other threads of their rank tell it."""

import ast
import contextlib
import multiprocessing.process
import os
import threading
import time
from pathlib import Path

import torch

import dlviz
from dlviz.cluster.stuck.stacks import parsed, stacks
from dlviz.cluster.stuck.threads import awake
from dlviz.collectives import ring
from dlviz.trace.recorder import user_line


def started(target, *args):
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def test_each_thread_is_where_it_is_innermost_call_first():
    inside, (wakes, leave) = threading.Event(), os.pipe()

    def waits(depth):
        if depth:
            waits(depth - 1)
        else:
            inside.set()
            os.read(wakes, 1)

    thread = started(waits, 3)
    inside.wait()
    time.sleep(0.05)
    found = stacks()
    os.write(leave, b"x")
    thread.join()
    os.close(wakes)
    os.close(leave)
    own = [call for call in found[thread.ident] if call.where[0] == __file__]
    assert [call.function.rpartition(".")[2] for call in own] == 4 * ["waits"]
    line = waits.__code__.co_firstlineno
    assert [call.where[1] - line for call in own] == [5, 2, 2, 2]
    assert user_line(call.where for call in found[thread.ident]) == (__file__, line + 5)
    assert found[threading.get_ident()][0].function == "stacks"
    assert thread.ident in awake(found)


def test_a_file_whose_name_is_not_ascii_is_found(tmp_path):
    file = tmp_path / "Übung 🎲.py"
    file.write_text("def rolls(inside, leave):\n    inside.set()\n    leave.wait()\n")
    names, inside, leave = {}, threading.Event(), threading.Event()
    exec(compile(file.read_text(), str(file), "exec"), names)
    thread = started(names["rolls"], inside, leave)
    inside.wait()
    time.sleep(0.05)
    places = [call.where for call in stacks()[thread.ident]]
    leave.set()
    thread.join()
    assert user_line(places) == (str(file), 3)


def test_the_users_line_is_in_no_library_unless_the_program_is_one():
    """A lane of dlviz's that works for `mine`, which a package that is installed has called."""
    packages = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "")
    rank = (multiprocessing.process.__file__, 108), ("<string>", 1)
    inside = [(ring.__file__, 7), (contextlib.__file__, 137), (torch.__file__, 9)]
    installed, mine = (f"{packages}lightning/fit.py", 5), ("/home/me/train.py", 3)
    assert user_line([*inside, installed, mine, *rank]) == mine
    assert user_line([*inside, installed, *rank]) == installed
    assert user_line([*inside, *rank]) == inside[0]
    assert user_line([*inside, ("/tmp/ipykernel_3/5.py", 1), mine]) == ("/tmp/ipykernel_3/5.py", 1)
    assert user_line([("<frozen runpy>", 88), mine]) == mine and user_line([]) == ("", 0)


# As autograd's threads are on a machine with GPUs: they have a Python state, and no call.
WROTE = """Thread 0x00007f0000000010 (most recent call first):
  <no Python frame>

Thread 0x00007f0000000020 (most recent call first):
  File "/home/me/train.py", line ??? in step
  File "/home/me/train.py", line 12 in <module>

Current thread 0x00007f0000000030 (most recent call first):
  File "/home/me/ask.py", line 3 in listen
"""


def test_a_thread_that_is_not_in_python_is_none_that_can_go_on():
    found = parsed(WROTE)
    assert awake(found) == {0x7F0000000020, 0x7F0000000030}
    (first, second), _ = found.values()
    assert (first.where, second.where) == (("/home/me/train.py", 0), ("/home/me/train.py", 12))
    assert [first.function, second.function] == ["step", "<module>"]


def test_reading_leaves_nothing_open_and_threads_may_go_on_meanwhile():
    leave = threading.Event()

    def runs(depth):
        return runs(depth - 1) if depth else 0

    def goes_on():
        while not leave.is_set():
            runs(20)

    threads = [started(goes_on) for _ in range(2)]
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    times = 300
    for _ in range(times):
        found = stacks()
        assert all(found[thread.ident][-1].where[0] == threading.__file__ for thread in threads)
    after = len(os.listdir("/proc/self/fd")) if before else 0
    leave.set()
    for thread in threads:
        thread.join()
    assert after - before < times / 2, "other threads of this process may open a few"


def test_no_frame_of_another_thread_is_followed():
    """In Python 3.11 `f_back` of one that goes on leads to memory that is something else's."""
    for file in Path(dlviz.__file__).parent.rglob("*.py"):
        named = {node.attr for node in ast.walk(ast.parse(file.read_text("utf-8")))
                 if isinstance(node, ast.Attribute)}  # fmt: skip
        assert "_current_frames" not in named, file
