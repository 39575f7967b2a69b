"""Rounds with a deadline: who is late is done without, at the deadline and not after."""

import time

import federated_oracle as oracle
import pytest
import torch
from federated_oracle import dealt, gap, model

import dlviz
from dlviz.federated import train
from dlviz.federated.aggregation import weighted_mean
from dlviz.federated.messages import UPDATE
from dlviz.machine import classroom

pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
STEP = 0.002  # s of a forward: a round of one batch is 1 + 2 + 1 of them


def rounds(slow, clients=4, **options):
    """Rounds of one batch, in which the last client is `slow` times as slow as the others."""
    machine = classroom(5, step=STEP, factors=[1, 1, 1, 1, slow])
    run = dlviz.launch(
        train, 5, machine=machine, args=(model(), dealt(clients)), kwargs=options, timeout=60
    )
    run.trace.validate()
    assert run.trace.meta["outcome"] == "completed", "no message is left"
    return run


def test_a_slow_client_is_late_in_every_round_and_the_round_ends_at_the_deadline():
    """A round takes the others some 14 ms, client 3 more than 30."""
    run = rounds(4, rounds=6, deadline=0.02)
    records = run.results[0]["rounds"]
    assert [record.selected for record in records] == [[0, 1, 2, 3]] * 6
    assert [record.answered for record in records] == [[0, 1, 2]] * 6
    assert [record.late for record in records] == [[3]] * 6
    longer = 0.02 + STEP  # the update of phase 5
    assert [record.seconds for record in records] == pytest.approx([longer] * 6, abs=1e-9)
    assert sum(len(record.dropped) for record in records) >= 2
    clients = dealt(4)[:3]
    expected = oracle.sgd(model(), clients, 6, 0.1)
    assert gap(run.results[0]["state"], expected) < 1e-12
    table = run.trace.messages
    came = int((table.tag == UPDATE).sum())
    assert came == sum(len(r.answered) + len(r.dropped) for r in records)
    assert all(
        r.unused == len(dealt(4)[3][1]) * (r.computed > sum(len(c[1]) for c in clients))
        for r in records
    )


def test_a_late_update_is_taken_in_the_round_in_which_it_comes_where_it_has_a_weight():
    run = rounds(4, rounds=6, deadline=0.02, late_weight=0.5)
    records = run.results[0]["rounds"]
    taken = [record.number for record in records if record.taken]
    assert taken and all(record.taken in ([], [3]) for record in records)
    assert not any(record.dropped for record in records[:-1])
    first = taken[0]
    clients, net = dealt(4), model()
    before = model()  # what client 3 was sent in round 0
    for number in range(first + 1):  # full-batch steps of each client from weights they share
        sizes = [len(labels) for _, labels in clients]
        starts = [net, net, net] + ([before] if number == first else [])
        weights = sizes[:3] + ([0.5 * sizes[3]] if number == first else [])
        rows = [[[torch.arange(size)]] for size in sizes]
        ends = [oracle.local(start, clients[k], 0.1, rows[k]) for k, start in enumerate(starts)]
        with torch.no_grad():
            moves = [
                [e - s for e, s in zip(end.parameters(), start.parameters(), strict=True)]
                for end, start in zip(ends, starts, strict=True)
            ]
            for place, p in enumerate(net.parameters()):
                p += sum(w / sum(weights) * m[place] for w, m in zip(weights, moves, strict=True))
    one = rounds(4, rounds=first + 1, deadline=0.02, late_weight=0.5)
    assert one.results[0]["rounds"][first].taken == [3]
    assert gap(one.results[0]["state"], net.state_dict()) < 1e-12


def test_a_deadline_that_is_too_short_leaves_the_weights_and_says_so():
    run = rounds(1, rounds=3, deadline=0.004)
    records = run.results[0]["rounds"]
    assert [record.late for record in records] == [[0, 1, 2, 3]] * 3
    assert [record.unchanged for record in records] == ["no client answered"] * 3
    assert gap(run.results[0]["state"], model().state_dict()) == 0
    assert all(record.unused == record.computed for record in records)


def test_clients_whose_round_takes_many_deadlines_come_home():
    """Each trains 40 deadlines long; the last round is over after three."""

    def outgoing(update, client, number):
        time.sleep(0.4)
        return update

    options = {"rounds": 3, "deadline": 0.01, "outgoing": outgoing}
    run = dlviz.launch(train, 4, args=(model(), dealt(3)), kwargs=options, timeout=60)
    records = run.results[0]["rounds"]
    assert not any(record.answered or record.lost for record in records)
    came = sum((record.dropped for record in records), [])
    assert came and len(came) == len({*came})  # each client's one update, too late


def test_the_server_closes_a_round_at_its_deadline_and_not_when_all_have_answered(tmp_path):
    """Client 1 sends nothing before the server has aggregated the last round."""

    def held_up(update, client, number):
        while client == 1 and not (tmp_path / "over").exists():
            time.sleep(0.01)
        return update

    def combine(updates, weights):
        assert len(updates) == 2
        made = len(list(tmp_path.iterdir()))
        (tmp_path / ("over" if made == 2 else str(made))).touch()
        return weighted_mean(updates, weights)

    options = {"rounds": 3, "deadline": 0.25, "outgoing": held_up, "combine": combine}
    run = dlviz.launch(train, 4, args=(model(), dealt(3)), kwargs=options, timeout=60)
    records = run.results[0]["rounds"]
    assert [record.late for record in records] == [[1]] * 3
    assert all(record.seconds >= 0.25 for record in records)
    assert records[-1].dropped == [1], "it came after the last round"
    spans = run.trace.only(rank=0, kind="phase").spans
    for record in records:
        of = spans[spans.step == record.number]
        whole = of.wall_end.max() - of.wall_start.min()
        assert whole >= 0.25


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan")])
def test_a_deadline_that_is_no_time_is_refused(deadline):
    with pytest.raises(dlviz.RankError, match="deadline=.* lets nobody answer"):
        dlviz.launch(train, 2, args=(model(), dealt(1)), kwargs={"rounds": 1, "deadline": deadline})
