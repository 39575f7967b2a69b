"""Two hosts with two ranks each do what four ranks on one host do."""

import json
import re
import shutil
import sys
import time
from pathlib import Path

import namespaces
import pretended
import pytest
import random_programs
import tried_on_hosts
from namespaces import several_hosts

import dlviz
from dlviz import Trace, cli

pytestmark = pytest.mark.slow
TORCHRUN = Path(sys.executable).with_name("torchrun")
SCRIPT = Path(tried_on_hosts.__file__)
LIMIT = 240  # s
GONE = "the host host-b with ranks 2 and 3 has gone"


class Outcome:
    """What torchrun has left on hosts with two ranks each, or with so many as `ranks` says: exit
    codes, what they printed, and files."""

    def __init__(self, hosts, *command, ranks=(2, 2)):
        how = (f"--nnodes={len(hosts)}", "--rdzv-backend=c10d", "--rdzv-id=a-run")
        self.hosts = hosts
        self.host_of = [host for host, own in zip(hosts, ranks, strict=True) for _ in range(own)]
        endpoint = "--rdzv-endpoint=host-a:29500"
        self.runs = [
            host.start(
                TORCHRUN, *how, f"--nproc-per-node={own}", endpoint, *command, **namespaces.ENVIRON
            )
            for host, own in zip(hosts, ranks, strict=True)
        ]

    def wait(self):
        self.said = [run.communicate(timeout=LIMIT) for run in self.runs]
        self.codes = [run.returncode for run in self.runs]
        return self

    def outcomes(self, rank):
        """By name, what the script has noted of its runs on that rank."""
        lines = self.host_of[rank].file(f"/tmp/outcomes-{rank}").read_text().splitlines()
        return {each["name"]: each for each in map(json.loads, lines)}

    def until(self, happened):
        """Wait until it has; the run of the first host may not end before."""
        until, ended = time.monotonic() + LIMIT, False
        while not happened():
            assert not ended, self.runs[0].communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
            ended = self.runs[0].poll() is not None

    def said_by_rank_0(self, words):
        """Wait until a file of this name lies on its host."""
        self.until(self.hosts[0].file(f"/tmp/{words}").exists)

    def noted(self, name, *ranks):
        """Wait until the run of that name has come to its outcome on these ranks."""
        self.until(lambda: all(name in self.outcomes(rank) for rank in ranks))

    def trace(self, name):
        return Trace.load(self.hosts[0].file(f"/tmp/{name}.json.gz"))


@pytest.fixture(scope="module")
def hosts():
    namespaces.need(namespaces.why_not())
    with several_hosts() as pair:
        yield pair


@pytest.fixture(scope="module")
def done(hosts):
    """All of it in one start of torchrun, which takes longer than the runs; the cable is cut at the
    last of them."""
    for host in hosts:  # else a network that is back may be silent as long again as it was cut
        host.run("sysctl", "-qe", "net.ipv4.tcp_rto_max_ms=1000")
    outcome, cable = Outcome(hosts, SCRIPT, "works", "command", "gpus", "refused", "cut"), hosts[1]
    outcome.said_by_rank_0("cut for 2 s")
    cable.link("ip", "link", "set", "eth0", "down")
    time.sleep(2)
    cable.link("ip", "link", "set", "eth0", "up")
    hosts[0].file("/tmp/back").touch()
    outcome.said_by_rank_0("cut for ever")
    cable.link("ip", "link", "set", "eth0", "down")
    outcome.noted("cut_off", *range(4))
    cable.link("ip", "link", "set", "eth0", "up")
    outcome.wait()
    assert outcome.codes == [0, 0], outcome.said
    left = [path for host in hosts for path in host.file("/dev/shm").iterdir()]
    assert not left
    return outcome


def as_json(value):
    return json.loads(json.dumps(value))


def order(trace, rank):
    """What a rank did, in order, by lane: on two hosts as on one."""
    spans = trace.only(rank=rank).spans
    rows = zip(spans.lane, spans.start, spans.kind, spans.name, spans.depth, strict=True)
    outer = [row[:4] for row in sorted(rows) if row[2] != "wait" and not row[4]]
    return [(lane, kind, name) for lane, _, kind, name in outer]


def messages(trace):
    columns = ("src", "dst", "nbytes", "offset", "count", "op", "tag", "group", "step")
    return sorted(tuple(getattr(row, name) for name in columns) for row in trace.messages.rows())


def test_results_messages_and_order_are_those_of_one_host(done):
    here = dlviz.launch(tried_on_hosts.everything, 4)
    there = done.outcomes(0)["everything"]
    assert there["results"] == as_json(here.results)
    trace = done.trace("everything")
    assert messages(trace) == messages(here.trace)
    for rank in range(4):
        assert order(trace, rank) == order(here.trace, rank)
        if rank:
            own = done.outcomes(rank)["everything"]["results"]
            assert own == as_json(here.results[rank : rank + 1])


def test_output_comes_home_with_its_rank(done):
    kept = done.outcomes(0)["everything"]["output"]
    for rank in range(4):
        assert f"rank {rank} is through\n" in kept[rank]
        assert f"[rank {rank}] rank {rank} is through\n" in done.said[0][0]
    assert "is through" not in done.said[1][0]


def test_the_trace_names_its_hosts_and_how_well_their_clocks_are_known(done):
    meta = done.trace("everything").meta
    assert meta["hosts"] == {"host-a": [0, 1], "host-b": [2, 3]}
    assert meta["clock_error"]["host-a"] == 0
    assert 0 < meta["clock_error"]["host-b"] < 0.05


def test_no_message_arrives_before_it_was_sent_by_more_than_the_bound(done):
    trace = done.trace("everything")
    bound = max(trace.meta["clock_error"].values())
    between = [row for row in trace.messages.rows() if (row.src < 2) != (row.dst < 2)]
    assert len(between) > 20
    assert all(row.received >= row.sent - bound for row in between)
    lasts = trace.spans.end.max() - trace.spans.start.min()
    assert lasts < 60  # though one clock is 1000 s ahead


ALIKE = [worker for worker in tried_on_hosts.FAILING if worker is not tried_on_hosts.shares]


@pytest.mark.parametrize("worker", ALIKE, ids=lambda worker: worker.__name__)
def test_what_fails_is_called_what_it_is_called_on_one_host(worker, done):
    here = tried_on_hosts.tried(worker, timeout=1.0 if worker is tried_on_hosts.too_long else 40.0)
    there = done.outcomes(0)[worker.__name__]
    seen_by_two = {
        "truncation": "message mismatch: message number 0 from",
        "mismatch": "as call number 0",
    }
    if worker.__name__ in seen_by_two:  # whoever sees it first
        assert all(seen_by_two[worker.__name__] in it["message"] for it in (here, there))
        return
    for what in ("error", "rank", "exitcode", "cycle"):
        assert there[what] == here[what], there["message"]
    if there["error"] == "DeadlockError":  # else some may not have come to their wait yet
        assert [wait[:2] for wait in there["waits"]] == [wait[:2] for wait in here["waits"]]
    assert all(host == f"host-{'aabb'[rank]}" for rank, _, host in there["waits"])
    assert done.trace(worker.__name__).meta["outcome"] == "failed"


@pytest.mark.parametrize("name", ["ring", "left_alone"])
def test_a_deadlock_across_hosts_is_named_within_3_s(name, done):
    found = done.outcomes(0)[name]
    assert found["error"] == "DeadlockError"
    lines = [line for line in found["message"].splitlines() if " now, at " in line]
    waited = [float(line.split(" for ")[1].split()[0]) for line in lines]
    assert waited and max(waited) < 3


def test_the_other_processes_of_a_run_that_failed_say_where_all_of_it_is_told(done):
    for rank in (1, 2, 3):
        found = done.outcomes(rank)["dies"]
        assert found["error"] == "RankError"
        assert "rank 2 on host-b was killed by SIGKILL" in found["message"]


def test_tensors_on_gpus_go_from_gpu_to_gpu_between_hosts(done):
    found = done.outcomes(0)["with_gpus"]
    assert "error" not in found, found["message"]
    programs, by_memory, sums, waited = zip(*found["results"], strict=True)
    random_programs.check(programs)
    pretended.check_transfers(programs, tried_on_hosts.SEED)
    assert all(by_memory)
    assert sums[2] == 9000 and waited[2][-1] < tried_on_hosts.SOON, waited


def test_a_deadlock_of_tensors_on_gpus_across_hosts_is_named(done):
    found = done.outcomes(0)["ring_of_gpus"]
    assert found["error"] == "DeadlockError" and sorted(found["cycle"]) == [0, 1, 2, 3]


def test_memory_is_not_shared_between_hosts(done):
    found = done.outcomes(0)["shares"]
    assert "ranks of group world are on several hosts, which share no" in found["message"]


def test_a_paced_run_is_refused_in_a_sentence(done):
    for rank in range(4):
        assert "a run on several hosts cannot be paced" in done.outcomes(rank)["paced"]["message"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("GLOO_SOCKET_IFNAME=ib7", "GLOO_SOCKET_IFNAME='ib7' is no interface of host-b"),
        (
            "GLOO_SOCKET_IFNAME=lo",
            "host-b (interface lo, 127.0.0.1) cannot reach host-a (interface eth0",
        ),
        ("two secrets", "set DLVIZ_SECRET to the same on both"),
        ("versions", "dlviz is 0.1.0 on host-a and 0.0.0 on host-b"),
    ],
)
def test_hosts_that_do_not_fit_together_are_refused_on_all_of_them(name, says, done):
    for rank in range(4):
        found = done.outcomes(rank)[name]
        assert found["error"] == "ValueError" and says in found["message"]
        assert found["seconds"] < 20


def test_hosts_with_one_secret_run(done):
    assert done.outcomes(0)["one secret"]["results"]


def test_the_command_leaves_one_trace_of_all_ranks_which_show_draws(hosts, done, tmp_path):
    assert [done.outcomes(rank)["command"]["code"] for rank in range(4)] == [0, 0, 0, 0]
    trace = done.trace("command")
    written = shutil.copy(hosts[0].file("/tmp/command.json.gz"), tmp_path)
    assert list(trace.ranks) == [0, 1, 2, 3] and trace.meta["outcome"] == "completed"
    assert {"forward", "backward", "update"} <= set(trace.spans.kind)
    assert "ddp on 4 ranks" in done.said[0][0] and "ddp" not in done.said[1][0]
    assert cli.main(["show", written, "--no-open", "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    (traits,) = re.findall(r'<script type="application/json" id="state">(.*?)</script>', page)
    groups = json.loads(json.loads(traits)["state"])["rankGroups"]
    assert [each["summary"] for each in groups] == [
        ["host-a", "ranks 0, 1"],
        ["host-b", "ranks 2, 3"],
    ]


def test_a_network_that_is_cut_for_2_s_is_waited_for_and_one_cut_for_ever_is_not(done):
    assert min(done.outcomes(0)["goes_on"]["results"]) >= 2 * tried_on_hosts.AFTER
    found = done.outcomes(0)["cut_off"]
    assert found["error"] == "RankError" and found["rank"] == 2
    assert f"{GONE}: nothing was heard of it" in found["message"]


@pytest.mark.sweep
def test_a_host_whose_parent_dies_ends_the_run():
    namespaces.need(namespaces.why_not())
    with several_hosts() as pair:
        outcome = Outcome(pair, SCRIPT, "parent dies")
        outcome.until(pair[0].file("/tmp/outcomes-0").exists)
        found = outcome.outcomes(0)["parent_dies"]
        assert found["error"] == "RankError" and found["seconds"] < 60
        assert f"{GONE}: it closed its connection" in found["message"]
