"""Federated averaging: a server and clients that keep their data, in rounds of five phases.

    1 selection        the server draws C K of the K clients
    2 weights out      and sends them its weights
    3 local training   each trains E epochs, batches of B, on data that never leave it
    4 updates back     and sends its update
    5 aggregation      the server adds the mean, weighted by the examples of those that answered

    server     1|2|3 wait ......|4|5|1|2|3 wait ......|4|5|
    client 0   1|2|3 E epochs   |4|5 wait |...
    client 1   1|              5 wait     |...                not selected

Rank 0 is the server and client i lives on rank 1 + i % (n - 1). With E = 1 and the whole data as
one batch this is FedSGD, which is full-batch SGD however the data lie; FedAvg computes more in a
round and needs fewer of them. Training goes on without a rank that the run may lose (`launch`,
`may_lose`): the round's record names its clients.

Source: McMahan, Moore, Ramage, Hampson and Arcas, "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017, algorithm 1. PyTorch has no such thing; Flower
calls it FedAvg.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.federated.aggregation import Combine, ServerRule, ServerUpdate, weighted_mean
from dlviz.federated.arrivals import Arrivals, ModelledClock
from dlviz.federated.client import Clients, Outgoing, take_part
from dlviz.federated.local import Data, LocalTraining
from dlviz.federated.privacy import Private
from dlviz.federated.round_record import Round
from dlviz.federated.selection import Selection, generator
from dlviz.federated.server import Server
from dlviz.federated.shutdown import send_home
from dlviz.federated.weights import Layout
from dlviz.models.mean_of import Loss, Weight, weight_on
from dlviz.models.options import TrainingOptions, check_options
from dlviz.models.result import Result

if TYPE_CHECKING:
    from dlviz.federated.masked_rounds import Secure

__all__ = ["Round", "train"]

RATE = 0.1  # where none is given


def train(
    comm: Comm,
    model: nn.Module,
    clients: Sequence[Data],
    *,
    rounds: int,
    fraction: float = 1.0,
    epochs: int = 1,
    batch: int | None = None,
    lr: float | None = None,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight | None = None,
    seed: int = 0,
    proximal: float = 0.0,
    server_momentum: float = 0.0,
    server_lr: float = 1.0,
    deadline: float | None = None,
    selection: str = "uniform",
    available: Sequence[float] | None = None,
    spare: int = 0,
    late_weight: float = 0.0,
    always: bool = False,
    fp16: bool = False,
    combine: Combine = weighted_mean,
    server_rule: ServerRule | None = None,
    outgoing: Outgoing | None = None,
    arrivals: Arrivals | None = None,
    secure: Secure | None = None,
    private: Private | None = None,
    **options: Unpack[TrainingOptions],
) -> Result:
    """Train `model` in so many `rounds`; every rank calls it, and uses only its own clients' data.

    clients: inputs (n_k, ...) and labels (n_k, ...) of each. loss(outputs, labels) is a mean over
        rows, or over what weight(inputs, labels) says, target tokens for one (local.py).
    fraction, selection, available, spare: which clients a round asks (selection.py).
    epochs, batch, lr (0.1), proximal: what a client does (local.py); batch=None: its whole data.
    server_momentum, server_lr, server_rule, combine: how the server uses it (aggregation.py);
        `combine` receives updates (clients, parameters) and their weights (clients,).
    deadline: the most seconds of a round (to begin, clients have 10 deadlines). The update of a
        late client is dropped when it arrives, or counts in that round with its weight times
        `late_weight`. On a paced run one that hangs stops the clock: the timeout names it.
    always: clients train in every round, asked or not. fp16: updates travel as 16 bits a value.
    outgoing: called with (update (parameters,), client, round); returns what is sent instead.
    arrivals: a model of the times of clients that share a process (arrivals.py); the deadline then
        is in its seconds. With `secure` it does not know how many examples they have: it takes 1.
    secure: the server gets only the sum of a round's updates (masked_rounds.py), and records hold
        no losses and no work; the deadline holds for each exchange of the sum.
    private: clips updates and noises their sum (privacy.py); a record's `epsilon` is that spent.
    options: those of any training (models/options.py). A client's rank has as loss the mean of its
        clients that were asked, and as model that of the last of them, as trained.

    Returns, on rank 0, a Result: `losses` of the rounds, `state`, the trained model's,
    `evaluations`, and `rounds`, a list of `Round`. Raises ValueError for what cannot train.
    Cost: 2|w| bytes for each client selected in a round, with fp16 half of that for the updates.
    """
    select = Selection(selection, fraction, spare, available, seed)
    check(comm, options, rounds, clients, available, deadline, late_weight)  # before any message
    if private is not None:
        given = {"combine": combine is not weighted_mean, "secure": secure, "spare": spare}
        private.check(selection, fraction, len(clients), given | {"late_weight": late_weight})
        combine = private.combine(fraction, len(clients), generator(seed, "noise"))
    weight = weight_on(loss, clients) if weight is None else weight
    how = LocalTraining(epochs, batch, RATE if lr is None else lr, loss, proximal, seed, weight)
    how = how.by(options, rounds, lr)
    layout = Layout(model.to(comm.device))  # the model as one row (parameters,)
    update = ServerUpdate(combine, server_momentum, server_lr, server_rule, layout.trained)
    if secure is not None:
        given = combine is not weighted_mean, late_weight, fp16  # need single updates
        secure.check(layout.read(), comm.size, len(clients), select, given, deadline, arrivals)
    if comm.rank:  # clients live here; rank 0 is the server
        mine = comm, layout, clients, how, outgoing, fp16
        own = Clients(*mine) if secure is None else secure.clients(*mine)
        take_part(own, rounds, always, options.get("callback"))  # the mirror image of `serve`
        return Result([], {}, {}, rounds=[])  # the trained model is the server's
    parts = comm, layout.read(), len(clients), select, update
    server = Server(*parts) if secure is None else secure.server(*parts)
    clock = None if arrivals is None else ModelledClock(arrivals, how.steps, server.ranks.sizes)
    server.expect(fp16, deadline, late_weight, clock)  # matches the SIZES of `take_part`
    return serve(server, rounds, layout, private, options)


def serve(
    server: Server,
    rounds: int,
    layout: Layout,
    private: Private | None,
    options: TrainingOptions,
) -> Result:
    """The server's rounds, and the late answers after the last; returns what rank 0 does."""
    evaluate, callback = options.get("evaluate"), options.get("callback")
    every, records, scores = options.get("evaluate_every", 1), [], {}
    for number in server.comm.progress(range(rounds), "training"):
        record = server.round(number)  # phases 1 to 5
        if private is not None:  # the noise does not depend on who came, so its price does not
            spent = private.epsilon(server.selection.fraction, number + 1)
            record = record._replace(epsilon=spent)
        if callback is not None or evaluate is not None:
            layout.write(server.weights)
        if callback is not None:
            callback(number, record.loss, layout.model)
        if evaluate is not None and (number + 1) % every == 0:
            with torch.no_grad():
                score = evaluate(copy.deepcopy(layout.model).eval())  # not in the round's seconds
            scores[number + 1] = score
            record = record._replace(score=score)
        records.append(record)
    records = send_home(server, records)  # takes late answers, or their senders wait for ever
    layout.write(server.weights)
    state = {name: value.cpu() for name, value in layout.model.state_dict().items()}
    return Result([each.loss for each in records], state, scores, rounds=records)


def check(
    comm: Comm,
    options: TrainingOptions,
    rounds: int,
    clients: Sequence[Data],
    available: Sequence[float] | None,
    deadline: float | None,
    late_weight: float,
) -> None:
    """Raise ValueError where there are no clients, or arguments do not fit them."""
    check_options(options)
    if comm.size < 2:
        raise ValueError("federated on 1 rank has a server and no client: use 2 ranks or more.")
    if comm.machine is not None and comm.machine.step is None:
        raise ValueError(
            "federated: a machine with step=None prices layers by their FLOPs, and here steps are "
            "priced as a whole: give the machine a step, the seconds of a forward."
        )
    if not (isinstance(rounds, int) and rounds >= 1):
        raise ValueError(f"rounds={rounds!r} train nothing: use 1 or more.")
    check_counts(rounds=rounds)
    if not clients:
        raise ValueError("clients=[] has nobody to train: give inputs and labels of one or more.")
    if available is not None and len(available) != len(clients):
        raise ValueError(
            f"available= has {len(available)} probabilities for {len(clients)} clients: give one "
            "for each."
        )
    for k, (inputs, labels) in enumerate(clients):
        if len(inputs) != len(labels):  # 0 of both will do: nobody asks such a client
            raise ValueError(
                f"client {k} has {len(inputs)} inputs and {len(labels)} labels: it needs as many "
                "of both."
            )
    if deadline is not None and not 0 < deadline < float("inf"):
        raise ValueError(
            f"deadline={deadline!r} lets nobody answer: use seconds above 0, or None to wait."
        )
    if not 0 <= late_weight < float("inf"):
        raise ValueError(f"late_weight={late_weight!r} is not a weight: use 0 to drop, or more.")
