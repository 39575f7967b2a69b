"""What fails between hosts ends in bounded time, in a sentence that names it, and leaves nothing.

One pair of hosts and one start of torchrun serve most of it: what breaks is broken in turn. The
first host has two ranks and finds itself at 127.0.1.1, as Debian sets it up, the other has one.
"""

import json
import re
import sys
import time
from pathlib import Path

import faults_on_hosts
import namespaces
import pytest
from namespaces import several_hosts

import dlviz

TORCHRUN = Path(sys.executable).with_name("torchrun")
SCRIPT = Path(faults_on_hosts.__file__)
HOW = (
    "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=a-run", "--rdzv-endpoint=host-a:29500",
)  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.sweep,
]  # the two hosts of test_two_hosts.py start faster
DEBIAN = "127.0.0.1 localhost\n127.0.1.1 host-a\n10.77.0.2 host-b\n"
MB = 1e6  # bytes
LIMIT = 100  # s for a step, on a busy machine


class Firewall:
    """Of one host: what comes in from the other is let through or dropped in silence."""

    def __init__(self, host):
        self._host, self._rules = host, 0
        host.link("ip", "rule", "add", "pref", "10", "lookup", "local")
        host.link("ip", "rule", "del", "pref", "0")

    def rule(self, what, **ports):
        given = [str(word) for port in ports.items() for word in port]
        how = "ip", "rule", "add", "pref", str(self._rules + 1), "iif", "eth0", "ipproto", "tcp"
        self._host.link(*how, *given, *what)
        self._rules += 1

    def drop(self, **ports):
        self.rule(["blackhole"], **ports)

    def let(self, **ports):
        self.rule(["lookup", "local"], **ports)

    def open(self):
        for number in range(self._rules):
            self._host.link("ip", "rule", "del", "pref", str(number + 1))
        self._rules = 0


class Faults:
    """The script on both hosts; `outcomes` are those of ranks 0 and 2, by name."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.walls = [Firewall(host) for host in hosts]
        hosts[0].file("/tmp/hosts").write_text(DEBIAN)
        into = "sh", "-c", 'exec "$@" > /tmp/said 2> /tmp/complained', "sh"
        self.runs = [
            host.start(
                *into, TORCHRUN, *HOW, f"--nproc-per-node={ranks}", SCRIPT, **namespaces.ENVIRON
            )
            for host, ranks in zip(hosts, (2, 1), strict=True)
        ]

    def read(self, rank):
        path = self.hosts[rank // 2].file(f"/tmp/outcomes-{rank}")
        lines = path.read_text().splitlines() if path.exists() else ()
        return {each["name"]: each for each in map(json.loads, lines)}

    def said(self, name="said", host=0):
        path = self.hosts[host].file(f"/tmp/{name}")
        return path.read_text() if path.exists() else ""

    def until(self, done):
        limit = time.monotonic() + LIMIT
        while not done():
            ended = self.runs[0].poll() is not None
            late = time.monotonic() > limit
            assert not ended and not late, [self.said("complained"), self.processes()]
            time.sleep(0.05)

    def step(self, name):
        """Return when the script has come to that step."""
        self.until(lambda: f"step {name}\n" in self.said())

    def outcome(self, name, *ranks):
        """Return when that step is over on these ranks."""
        self.until(lambda: all(name in self.read(rank) for rank in ranks))

    def processes(self, host=0):
        """Pid and command of what runs on a host beside its first process."""
        lines = self.hosts[host].run("ps", "-wweo", "pid=,args=").splitlines()
        others = [line for line in lines if line.split()[0] != "1" and "ps -ww" not in line]
        return [line for line in others if "<defunct>" not in line]  # the first one reaps nobody

    def open(self):
        for wall in self.walls:
            wall.open()

    def drop(self, ends):
        """Drop what connections with these ports here and there carry, both ways."""
        for here, there in ends:
            self.walls[0].drop(dport=here, sport=there)
            self.walls[1].drop(dport=there, sport=here)

    def close(self, wire):
        """Drop all that comes to the first host but what goes to torchrun's stores, and on a wire
        that is there."""
        for port in wire["store"]:
            self.walls[0].let(dport=port)
        for here, there in wire["ends"]:
            self.walls[0].let(dport=here, sport=there)
        self.walls[0].drop(dport="1024-65534")

    def connections(self):
        """The ports here and there of all connections between the hosts."""
        lines = self.hosts[0].run("ss", "-tnH", "state", "established").splitlines()
        ends = [[end.rpartition(":") for end in line.split()[2:4]] for line in lines]
        there = self.hosts[1].address
        return [(int(a[2]), int(b[2])) for a, b in ends if b[0].endswith(there)]


@pytest.fixture(scope="module")
def faults():
    """Everything broken in turn, and what came of it on ranks 0 and 2, by name."""
    namespaces.need(namespaces.why_not())
    with several_hosts() as hosts:
        run = Faults(hosts)
        break_the_network(run)
        break_the_hosts(run)
        run.outcome("no host", 0, 1)
        run.outcomes = [run.read(0), run.others]
        run.warned = run.said("complained")
        yield run


def break_the_network(run):
    run.step("no wires")
    run.drop(run.read(0)["wire"]["ends"])
    run.outcome("no wires", 0, 2)
    run.open()
    run.step("no bytes")
    wire = run.read(0)["wire"]
    others = [
        ends
        for ends in run.connections()
        if list(ends) not in wire["ends"] and not set(ends) & set(wire["store"])
    ]
    assert len(others) >= 2  # rank 2 is connected to ranks 0 and 1
    run.drop(others)
    run.outcome("no bytes", 0, 2)
    run.open()
    run.step("no lines")
    run.close(run.read(0)["wire"])
    run.hosts[0].file("/tmp/no-lines").touch()
    run.outcome("no lines", 0, 2)
    run.open()
    run.step("no way")
    run.close(wire | {"ends": []})
    run.hosts[0].file("/tmp/closed").touch()
    run.outcome("no way", 0, 2)
    run.open()
    run.hosts[0].file("/tmp/opened").touch()


def break_the_hosts(run):
    run.step("no torchrun")
    (agent,) = [line.split()[0] for line in run.processes(1) if HOW[-1] in line]
    run.hosts[1].run("kill", "-9", agent)
    run.outcome("no torchrun", 0, 2)
    run.step("no host")
    run.others = run.read(2)
    run.hosts[1].end()


def test_two_ranks_and_one_do_what_three_on_one_host_do(faults):
    here = dlviz.launch(faults_on_hosts.small, 3)
    assert faults.outcomes[0]["small"]["results"] == here.results


def test_the_hosts_share_neither_memory_nor_clock(faults):
    here, there = [outcomes["apart"] for outcomes in faults.outcomes]
    assert here["memory"] != there["memory"]
    assert there["clock"] - here["clock"] > 900


def test_a_rank_of_another_host_that_prints_for_ever_holds_up_nobody_and_fills_no_memory(faults):
    here, there = [outcomes["flood"] for outcomes in faults.outcomes]
    for found in (here, there):
        assert found["says"].startswith("RankError: rank 0 on host-a raised RuntimeError: enough")
        assert found["seconds"] < 20
    assert here["printed"] > MB
    assert here["grown"] < 4 * here["printed"] + 64 * MB  # as on one host, whose output is kept
    assert there["grown"] < 32 * MB


def test_a_clock_that_is_stepped_is_told_and_the_bound_covers_the_step(faults):
    found = faults.outcomes[0]["stepped"]
    assert found["outcome"] == "completed"
    assert found["clock_error"]["host-a"] == 0
    assert found["clock_error"]["host-b"] >= faults_on_hosts.STEP
    assert 0.005 < found["back"] <= found["clock_error"]["host-b"]  # the step is there to be seen
    says = "the clocks of host-a and host-b moved apart by 5"
    assert found["warning"].startswith(says) and "times of rank 2 may be" in found["warning"]
    assert f"RuntimeWarning: {says}" in faults.warned


ENDS = {  # step: what the first host says, what the other one does
    "no wires": (
        "the host host-b with rank 2 has gone: nothing was heard of it for . s",
        "the host host-a, which coordinates the run, has gone: nothing was heard of it for . s",
    ),
    "no bytes": (
        r"rank [012] on (host-a gets no answer from host-b \(10.77.0.2\)|host-b gets no answer "
        r"from host-a \(10.77.0.1\)), though the hosts hear each other: let their firewalls pass ",
        "rank [012] on host-. gets no answer .* shows all of it",
    ),
    "no lines": (
        r"rank [012] on (host-a gets no answer from host-b \(10.77.0.2\)|host-b gets no answer "
        r"from host-a \(10.77.0.1\)), though the hosts hear each other: let their firewalls pass ",
        "rank [012] on host-. gets no answer .* shows all of it",
    ),
    "no way": (
        r"host-b \(interface eth0, 10.77.0.2\) cannot reach host-a \(interface eth0, 10.77.0.1\): "
        "timed out; let the hosts' firewalls pass",
        "host-b .* cannot reach host-a .*: timed out",
    ),
    "no torchrun": (
        "the host host-b with rank 2 has gone: torchrun on host-b, which started this, was killed.",
        "torchrun on host-b, which started this, was killed.",
    ),
    "no host": ("the host host-b with rank 2 has gone: ", None),
}


@pytest.mark.parametrize("step", ENDS)
def test_a_fault_ends_the_run_soon_in_a_sentence_on_each_host(step, faults):
    for outcomes, says in zip(faults.outcomes, ENDS[step], strict=True):
        if says is not None:
            assert re.match(says, outcomes[step]["message"]), outcomes[step]
            wrong = ("ValueError",) if step == "no way" else ("RankError", "RunError")
            assert outcomes[step]["error"] in wrong
            assert outcomes[step]["seconds"] < 20


def test_nothing_is_left_where_the_other_host_was_ended(faults):
    """torchrun itself waits there for the other one for minutes."""
    host = faults.hosts[0]
    faults.until(lambda: not [line for line in faults.processes() if HOW[-1] not in line])
    assert not list(host.file("/dev/shm").iterdir())
    assert not list(host.file("/tmp").glob("dlviz*"))
