"""After the last round: the server ends the training and takes the answers still in transit.

Each rank then reports what its clients have computed, asked for or not, and the rounds' records get
it. A rank that does not report is given up after several deadlines or some seconds, whichever is
longer: a client whose round takes many times a short deadline is then still at work.
"""

from __future__ import annotations

from contextlib import suppress

import torch

from dlviz.cluster import RankLost
from dlviz.federated.messages import LEDGER
from dlviz.federated.round_record import Open, Round
from dlviz.federated.server import PATIENCE, Server

LEAST = 5.0  # s of the run's clock that the server waits after the last round


def send_home(server: Server, records: list[Round]) -> list[Round]:
    """End the training of `server`. Returns its records, with each round's computed examples."""
    comm, clock, ranks = server.comm, server.clock, server.ranks
    closes = None
    if server.deadline is not None:
        closes = comm.now() + max(PATIENCE * server.deadline, LEAST)
    after = Open(len(records), server.weights, None if clock else closes)
    for rank in ranks.owed:
        ranks.invite(rank, after.number, set())
    came: int | None = 0
    while any(ranks.owed.values()) and came is not None:
        with suppress(RankLost):
            came = ranks.listen(after)
            if came is not None:
                server.take(came, after)
    home = [rank for rank in ranks.homes if hear_ledger(server, rank, len(records), after)]
    for request in ranks.sends:
        if request.peer in [comm.members[rank] for rank in home]:
            with suppress(RankLost):
                request.wait()
    late = [*after.dropped, *after.taken, *(clock.left() if clock else ())]
    return [
        record._replace(
            dropped=sorted(record.dropped + late * (record is records[-1])),
            computed=server.work.of(record.number),
            unused=server.work.of(record.number, unused=True),
        )
        for record in records
    ]


def hear_ledger(server: Server, rank: int, rounds: int, after: Open) -> bool:
    """Receive what a rank's clients have computed. Returns whether it came: the rank is done."""
    comm, ranks = server.comm, server.ranks
    clients = ranks.homes[rank]
    ledger = torch.zeros(rounds, len(clients), dtype=torch.int64)
    try:
        if rank in ranks.unreported:
            ranks.hear_sizes(rank, after.closes)
        if comm.recv(ledger, rank, LEDGER, deadline=after.closes) is None:
            return False
    except RankLost:
        return False
    for number, place in ledger.nonzero().tolist():
        server.work.computed[number, clients[place]] = int(ledger[number, place])
    return True
