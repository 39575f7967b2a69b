"""Three hosts, of which the first has two ranks and the others one each, do what one host does."""

import re

import namespaces
import pytest
import tried_on_hosts
from namespaces import several_hosts
from test_two_hosts import SCRIPT, Outcome, as_json, messages

import dlviz

pytestmark = [pytest.mark.slow, pytest.mark.sweep]
HOSTS = {"host-a": [0, 1], "host-b": [2], "host-c": [3]}
FAR = 80 - 40  # of a bar of 20 for each rank: what the first host's alone come to


@pytest.fixture(scope="module")
def done():
    namespaces.need(namespaces.why_not())
    with several_hosts(3) as hosts:
        outcome = Outcome(hosts, SCRIPT, "three", ranks=(2, 1, 1)).wait()
        assert outcome.codes == [0, 0, 0], outcome.said
        left = [path for host in hosts for path in host.file("/dev/shm").iterdir()]
        assert not left
        outcome.noted = [outcome.outcomes(rank) for rank in range(4)]
        outcome.recorded = outcome.trace("everything")
        yield outcome


def test_results_and_messages_are_those_of_one_host(done):
    here = dlviz.launch(tried_on_hosts.everything, 4)
    assert done.noted[0]["everything"]["results"] == as_json(here.results)
    assert messages(done.recorded) == messages(here.trace)


def test_the_trace_is_by_the_clock_of_the_first(done):
    """The second is 1000 s ahead of it, the third 2000 s."""
    meta, rows = done.recorded.meta, list(done.recorded.messages.rows())
    assert meta["hosts"] == HOSTS and meta["clock_error"]["host-a"] == 0
    host = {rank: name for name, ranks in HOSTS.items() for rank in ranks}
    seen = set()
    for row in rows:
        pair = host[row.src], host[row.dst]
        bound = sum(meta["clock_error"][name] for name in pair) if len({*pair}) > 1 else 0
        assert row.received >= row.sent - bound
        seen.add(pair)
    assert ("host-b", "host-c") in seen


def test_output_and_progress_of_all_hosts_come_to_the_first(done):
    for rank in range(4):
        assert f"[rank {rank}] rank {rank} is through\n" in done.said[0][0]
    shown = [int(n) for n in re.findall(r"balls: +\d+%.*?(\d+)/80", done.said[0][1])]
    assert max(shown) > FAR
    assert not any("balls" in err for _, err in done.said[1:])


def test_ranks_of_one_host_share_memory_beside_those_of_others(done):
    here = dlviz.launch(tried_on_hosts.shares_inside, 4).results
    assert done.noted[0]["shares_inside"]["results"] == here == [[2, 1], [2, 1], [1, 2], [1, 3]]


def test_a_deadlock_across_three_hosts_is_named_with_each_rank_and_its_host(done):
    found = done.noted[0]["ring"]
    assert found["error"] == "DeadlockError" and len(found["cycle"]) == 4
    assert {(rank, host) for rank, _, host in found["waits"]} == {
        (rank, name) for name, ranks in HOSTS.items() for rank in ranks
    }


def test_a_rank_of_the_third_that_raises_is_named_on_all(done):
    says = "rank 3 on host-c raised KeyError"
    assert all(says in found["raises_on_the_last"]["message"] for found in done.noted)
