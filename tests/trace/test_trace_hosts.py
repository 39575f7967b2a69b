"""A Trace of several hosts: what of it can have been, and how its file names hosts."""

from __future__ import annotations

import json

import pytest
from viz_scenes import data_parallel, on_hosts

from dlviz.trace import Trace, TraceError

HOSTS = {"host-b": [1, 3], "host-a": [0, 2]}


def early(error):
    """Messages from host to host that come 0.05 ms before they are sent, as the clocks go."""
    return on_hosts(data_parallel(4, 1), HOSTS, {"host-a": 0.0, "host-b": error}, {"host-b": -3e-4})


def test_a_message_of_another_host_may_come_early_by_the_bound_and_no_more(tmp_path):
    trace = early(5.1e-5)
    assert trace.messages.received[1] < trace.messages.sent[1]
    loaded = Trace.load(trace.save(tmp_path / "t.json.gz"))
    assert loaded.meta["hosts"] == HOSTS and loaded.meta["clock_error"]["host-b"] == 5.1e-5
    with pytest.raises(TraceError, match=r"rank 0 to rank 1\) has arrived .* s before sent"):
        early(4.9e-5).validate()


def test_a_message_of_the_same_host_comes_no_earlier_than_it_was_sent():
    trace = on_hosts(data_parallel(4, 1), {"host-a": [0, 1], "host-b": [2, 3]}, {"host-a": 1.0})
    trace.messages.received[1] = trace.messages.sent[1] - 1e-6
    with pytest.raises(TraceError, match="rank 0 to rank 1"):
        trace.validate()


@pytest.mark.parametrize(
    "hosts", [{"a": [0, 1], "b": [1, 2, 3]}, {"a": [0, 1], "b": [2]}, {"a": [0, 1, 2, 3, 4]},
              {"a": "0123"}, ["a", "b"], {"a": [0, 1], "b": ["2", "3"]}],
)  # fmt: skip
def test_hosts_have_each_rank_once(hosts):
    made = data_parallel(4, 1)
    trace = Trace(made.spans, made.messages, meta={**made.meta, "hosts": hosts})
    with pytest.raises(TraceError, match=r"meta\['hosts'\] is .* every rank from 0 to 3 once"):
        trace.validate()


@pytest.mark.parametrize("errors", [{"host-c": 0.1}, {"host-a": -1e-6}, {"host-b": "1"}, [0.1]])
def test_the_error_of_a_clock_is_a_time_of_a_known_host(errors):
    with pytest.raises(TraceError, match=r"meta\['clock_error'\] is .* state by host"):
        on_hosts(data_parallel(4, 1), HOSTS, errors).validate()


def test_the_chrome_file_has_the_ranks_of_a_host_together_each_with_its_name(tmp_path):
    path = on_hosts(data_parallel(4, 1), HOSTS).save(tmp_path / "t.json")
    labels = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "M"]
    name, order = (
        {own["pid"]: next(iter(own["args"].values())) for own in labels if own["name"] == what}
        for what in ("process_name", "process_sort_index")
    )
    assert [name[rank] for rank in sorted(order, key=order.__getitem__)] == [
        "rank 0 (host-a)", "rank 2 (host-a)", "rank 1 (host-b)", "rank 3 (host-b)",
    ]  # fmt: skip
