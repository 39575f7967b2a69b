"""What may fail between hosts ends in bounded time, in a sentence that names it, and leaves nothing.

One pair of hosts and one start of torchrun serve most of it: what breaks is broken in turn. The
first host has two ranks and finds itself at 127.0.1.1, as Debian sets it up, the other has one.
"""

import json
import sys
import time
from pathlib import Path

import faults_on_hosts
import namespaces
import pytest
from namespaces import two_hosts

import dlviz
from dlviz import Trace

TORCHRUN = Path(sys.executable).with_name("torchrun")
SCRIPT = Path(faults_on_hosts.__file__)
HOW = (
    "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=a-run", "--rdzv-endpoint=host-a:29500",
)  # fmt: skip
DEBIAN = "127.0.0.1 localhost\n127.0.1.1 host-a\n10.77.0.2 host-b\n"
RATE = 25e6  # bytes/s between the hosts
LIMIT = 120  # s for a step


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
    """The script on both hosts; `outcomes` are host 0's by name, `others` those of host 1."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.walls = [Firewall(host) for host in hosts]
        hosts[0].file("/tmp/hosts").write_text(DEBIAN)
        environ = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(dlviz.__file__).parents[1])}
        into = "sh", "-c", 'exec "$@" > /tmp/said 2> /tmp/complained', "sh"
        self.runs = [
            host.start(*into, TORCHRUN, *HOW, f"--nproc-per-node={ranks}", SCRIPT, **environ)
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
            assert time.monotonic() < limit and not ended, self.said("complained")
            time.sleep(0.05)

    def step(self, name):
        """Return when the script has come to that step."""
        self.until(lambda: f"step {name}\n" in self.said())

    def outcome(self, name, *ranks):
        """Return when that step is over on these ranks."""
        self.until(lambda: all(name in self.read(rank) for rank in ranks))

    def open(self):
        for wall in self.walls:
            wall.open()

    def drop(self, ends):
        """Drop what connections with these ports here and there carry, both ways."""
        for here, there in ends:
            self.walls[0].drop(dport=here, sport=there)
            self.walls[1].drop(dport=there, sport=here)

    def connections(self):
        """The ports here and there of all connections between the hosts."""
        lines = self.hosts[0].run("ss", "-tnH", "state", "established").splitlines()
        ends = [[end.rpartition(":") for end in line.split()[2:4]] for line in lines]
        there = self.hosts[1].address
        return [(int(a[2]), int(b[2])) for a, b in ends if b[0].endswith(there)]


@pytest.fixture(scope="module")
def faults():
    """Everything broken in turn, and what came of it: by name on ranks 0 and 2, and what is left."""
    namespaces.need(namespaces.why_not())
    with two_hosts(rate=f"{RATE * 8:.0f}bit") as hosts:
        run = Faults(hosts)
        break_the_network(run)
        break_the_hosts(run)
        run.until(lambda: "left" in run.read(0))
        run.until(lambda: "torchrun" not in " ".join(hosts[0].processes()))
        run.complained = run.said("complained")
        run.outcomes = [run.read(0), run.others]
        run.processes = hosts[0].processes()
        run.memory = [path.name for path in hosts[0].file("/dev/shm").iterdir()]
        run.files = [path.name for path in hosts[0].file("/tmp").iterdir()]
        run.trace = Trace.load(hosts[0].file("/tmp/stepped.json.gz"))
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
    run.step("no way")
    for port in wire["store"]:
        run.walls[0].let(dport=port)
    run.walls[0].drop(dport="1024-65534")
    run.hosts[0].file("/tmp/closed").touch()
    run.outcome("no way", 0, 2)
    run.open()
    run.hosts[0].file("/tmp/opened").touch()


def break_the_hosts(run):
    run.step("no torchrun")
    other = run.hosts[1]
    lines = other.run("ps", "-eo", "pid,args").splitlines()
    (agent,) = [line.split()[0] for line in lines if HOW[-1] in line]
    other.run("kill", "-9", agent)
    run.outcome("no torchrun", 0, 2)
    run.step("no host")
    run.others = run.read(2)
    other.end()


@pytest.mark.slow
def test_two_ranks_and_one_do_what_three_on_one_host_do(faults):
    here = dlviz.launch(faults_on_hosts.small, 3)
    assert faults.outcomes[0]["small"]["results"] == here.results
