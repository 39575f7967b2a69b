"""What the explorer of federated learning runs: FedAvg on the digits, a server on rank 0 and all
clients on rank 1. Training and messages are real; the clients' times are modelled (`Arrivals`).

With secure aggregation the updates of the last round are then summed once more, by its server on
rank 0 and its clients on rank 1: what they send is counted, and what the server sees is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.trace import Trace
from dlviz.viz import text
from dlviz.widgets.federation import (
    BEARS,
    PARAMETERS,
    SCALED,
    SUM_BITS,
    SUM_CLIP,
    WIDTHS,
    Values,
    arrivals,
    attackers,
    epsilons,
    liars,
    secure_bytes,
)
from dlviz.widgets.running import Found, Tell

if TYPE_CHECKING:
    import torch

    from dlviz.cluster import Comm
    from dlviz.federated import Round

    Tensor = torch.Tensor

LR = 0.1
SEED = 0
SECURE = 16  # tag of the messages of secure aggregation
PARTS = 16  # of a histogram of what the server sees
SPREAD = 4.0  # a histogram of values reaches so many standard deviations to either side
FATES = ("answered", "late", "busy", "rejected", "lost")


def run(values: Values, tell: Tell) -> Found:
    """Train on two ranks: what the front end shows, and the Trace."""
    from dlviz.cluster.parent.launch import watched
    from dlviz.cluster.parent.output import ProgressCallback

    done = watched(ProgressCallback(tell), play, 2, args=(values,), timeout=600.0)
    (rounds, seen, total), (_, _, true) = done.results
    return found(values, rounds, seen, done.trace, total, true), done.trace


def found(
    values: Values,
    rounds: Sequence[Round],
    seen: dict[int, list[int]],
    trace: Trace,
    total: Tensor | None,
    true: Tensor | None,
) -> dict[str, Any]:
    """What a run comes to."""
    scores = [each.score for each in rounds]
    told = [f"{100 * scores[-1]:.1f} % of the test digits are read after {len(rounds)} rounds."]
    still = {each.number: each.unchanged for each in rounds if each.unchanged}
    if still:
        number, why = next(iter(still.items()))
        told.append(
            f"{len(still)} of {len(rounds)} rounds left the weights as they were: {why} (round "
            f"{number})"
        )
    summed = None
    if total is not None and true is not None:
        summed = secure_figures(trace, len(seen), float((total - true).abs().max()))
        told.append(sum_words(summed))
    elif values["secure"]:
        told.append("In no round did 2 clients answer: there was nothing to sum in secret.")
    return {
        "accuracy": [round(score, 4) for score in scores],
        "nbytes": nbytes_of(values, rounds),
        "seconds": [round(each, 4) for each in accumulate(each.seconds for each in rounds)],
        "epsilon": epsilons(values),
        "fates": fates_of(rounds, values["clients"]),
        "unchanged": sorted(still),
        "saw": seen,
        "summed": summed,
        "notes": told,
    }


def nbytes_of(values: Values, rounds: Sequence[Round]) -> list[int]:
    """All bytes after each round. Of a round under secure aggregation updates are what its clients
    send and get in the four exchanges, which the run has counted once."""
    each = [record.nbytes for record in rounds]
    if values["secure"]:
        trained = [nbytes // (8 * PARAMETERS) for nbytes in each]  # clients that trained
        each = [many * (4 * PARAMETERS + sum(secure_bytes(many))) for many in trained]
    return [*accumulate(each)]


def fates_of(rounds: Sequence[Round], clients: int) -> list[list[int]]:
    """What became of each client in each round, a place in FATES, -1 where it was not asked:
    (clients, rounds). Who is at an answer to a round before is busy, not late again."""
    fates = np.full((clients, len(rounds)), -1)
    away: set[int] = set()
    for place, each in enumerate(rounds):
        busy = away.intersection(each.late)
        which = (each.answered, set(each.late) - busy, busy, each.rejected, each.lost)
        for fate, named in enumerate(which):
            fates[[*named], place] = fate
        away = (away | set(each.late)) - set(each.dropped)
    return fates.tolist()


def secure_figures(trace: Trace, many: int, off: float) -> dict[str, Any]:
    """What the one sum under secure aggregation took: bytes that a client sent and got, from the
    messages; seconds by the wall clock; how far it is from the plain sum."""
    messages, spans = trace.messages, trace.spans
    own = messages.tag == SECURE
    sent, got = (int(messages.nbytes[own & (messages.dst == rank)].sum()) for rank in (0, 1))
    (row,) = np.flatnonzero((spans.name == "secure sum") & (spans.rank == 0))
    return {
        "clients": many,
        "sent": sent // many,
        "got": got // many,
        "seconds": float(spans.wall_end[row] - spans.wall_start[row]),
        "off": off,
    }


def sum_words(summed: dict[str, Any]) -> str:
    return (
        f"The last updates, of {summed['clients']} clients, summed in secret: a client sent "
        f"{text.nbytes(summed['sent'])} and got {text.nbytes(summed['got'])}, in "
        f"{text.seconds(summed['seconds'])} for all; the sum is off by {summed['off']:.1g} at most."
    )


# -- on the ranks ----------------------------------------------------------------------------------
def play(comm: Comm, values: Values) -> tuple[list[Round], dict[int, list[int]], Tensor | None]:
    """What a rank runs. Returns, on rank 0, the rounds, a histogram of what the server saw of each
    client that was heard last, and the sum under secure aggregation, if there was one; on rank 1
    that sum in the open."""
    import torch

    from dlviz.datasets import digits
    from dlviz.federated import partition, train
    from dlviz.models import MLP, accuracy

    torch.manual_seed(SEED)
    images, labels = digits("train")
    test = digits("test")
    parts = partition.dirichlet(labels, values["clients"], values["alpha"])
    heard: list[Tensor] = []  # the last updates that the server combined
    sent: dict[int, dict[int, Tensor]] = {}  # round: client: what it sent
    end = train(
        comm,
        MLP(WIDTHS),
        [dataset(values, images[part], labels[part], k) for k, part in enumerate(parts)],
        rounds=values["rounds"],
        fraction=values["fraction"],
        epochs=values["epochs"],
        batch=values["batch"],
        lr=LR,
        seed=SEED,
        selection="poisson" if values["sigma"] else "uniform",
        deadline=values["deadline"],
        fp16=values["bits"] == 16,
        combine=combined(values, heard),
        outgoing=outgoing(values, sent),
        arrivals=arrivals(values),
        evaluate=lambda model: accuracy(model, *test),
    )
    rounds = end["rounds"]
    if values["secure"]:
        return (rounds, *secure_round(comm, rounds, sent, [len(part) for part in parts]))
    last = next((each.answered for each in reversed(rounds) if each.answered), [])
    seen = {k: histogram(row) for k, row in zip(last, heard[0] if heard else [], strict=True)}
    return rounds, seen, None


def dataset(values: Values, images: Tensor, labels: Tensor, client: int) -> tuple[Tensor, Tensor]:
    """A client's digits; an attacker's may bear false labels."""
    from dlviz.federated import attacks

    if values["attack"] == "flip_labels" and client < attackers(values):
        labels = attacks.flip_labels(labels, WIDTHS[-1])
    return images, labels


def outgoing(
    values: Values, sent: dict[int, dict[int, Tensor]]
) -> Callable[[Tensor, int, int], Tensor]:
    """What a client sends in place of its update. Under secure aggregation the server cannot clip:
    honest clients do it themselves."""
    from dlviz.federated import attacks
    from dlviz.federated.privacy import clip

    bound, liars_to = values["clip"], attackers(values)

    def falsified(update: Tensor, client: int, number: int) -> Tensor:
        if values["secure"] and bound is not None:
            update = clip(update, bound)
        if client < liars_to and values["attack"] == "scale":
            update = attacks.scale(update, SCALED)
        if client < liars_to and values["attack"] == "sign_flip":
            update = attacks.sign_flip(update)
        sent.setdefault(number, {})[client] = update
        return update

    return falsified


def combined(values: Values, heard: list[Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """What the server makes of the updates; it leaves the last in `heard`."""
    import torch

    from dlviz.federated import robust
    from dlviz.federated.privacy import central, clip

    bound, sigma, method = values["clip"], values["sigma"], values["method"]
    noise = torch.Generator().manual_seed(SEED)
    given = {"attackers": liars(values)} if method in BEARS else {}

    def combine(updates: Tensor, weights: Tensor) -> Tensor:
        if len(updates):
            heard[:] = [updates.clone()]
        if bound is not None and not values["secure"]:
            updates = clip(updates, bound)
        if bound is None or not sigma:
            return getattr(robust, method)(updates, weights, **given)
        alone = central(  # the noise on a sum of nothing: who came has been clipped before
            updates.new_zeros(1, updates.shape[1]),
            weights,
            bound=bound,
            noise_multiplier=sigma,
            sample_rate=values["fraction"],
            clients=values["clients"],
            generator=noise,
        )
        return updates.sum(0) / (values["fraction"] * values["clients"]) + alone

    return combine


def histogram(row: Tensor) -> list[int]:
    """How many values of an update lie in each of PARTS equal parts around 0."""
    values = row.double().numpy()
    edge = SPREAD * float(values.std()) or 1.0
    return np.histogram(np.clip(values, -edge, edge), PARTS, (-edge, edge))[0].tolist()


# -- one sum under secure aggregation --------------------------------------------------------------
def secure_round(
    comm: Comm,
    rounds: Sequence[Round],
    sent: dict[int, dict[int, Tensor]],
    sizes: Sequence[int],
) -> tuple[dict[int, list[int]], Tensor | None]:
    """Sum what the clients sent in the last round in which two or more answered, each weighted by
    its share of the examples. Returns a histogram of the residues that the server sees of each
    client, and the sum: rank 0 that of the protocol, rank 1 that of the vectors."""
    import torch

    from dlviz.federated.secure.terms import Terms

    word = torch.zeros(1 + len(sizes), dtype=torch.int64)  # the round, and who answered
    if comm.rank == 0:
        last = next((each for each in reversed(rounds) if len(each.answered) > 1), None)
        if last is not None:
            word[0] = last.number
            word[[1 + k for k in last.answered]] = 1
        comm.send(word, 1)
    else:
        comm.recv(word, 0)
    who = word[1:].nonzero().flatten().tolist()
    if not who:
        return {}, None
    many = len(who)
    terms = Terms((PARAMETERS + 1,), "float32", many, many // 2 + 1, SUM_CLIP, SUM_BITS)
    terms.check()
    with comm.span("phase", "secure sum"):
        if comm.rank == 0:
            saw, total = serve(comm, terms)
            return dict(zip(who, saw, strict=True)), total
        whole = sum(sizes[k] for k in who)
        vectors = []
        for k in who:
            share = sizes[k] / whole
            vectors.append(torch.cat([share * sent[int(word[0])][k], torch.tensor([share])]))
        be_clients(comm, terms, vectors)
    return {}, torch.stack(vectors).double().sum(0)


def serve(comm: Comm, terms: Any) -> tuple[list[list[int]], Tensor]:
    """The server of one sum: what it sees of each client, and the sum."""
    from dlviz.federated.secure.messages import EXCHANGES, HEAD, MASKED
    from dlviz.federated.secure.server import server

    machine, total, saw = server(terms), None, []
    next(machine)
    for exchange in range(len(EXCHANGES)):
        messages = {each: take(comm, 1) for each in range(1, terms.clients + 1)}
        if exchange == MASKED:
            for message in messages.values():
                residues = np.frombuffer(message[HEAD.size :], terms.code.word)
                saw.append(np.histogram(residues, PARTS, (0, 2**SUM_BITS))[0].tolist())
        answers, total = machine.send(messages)
        for answer in answers.values():
            give(comm, answer, 1)
    return saw, terms.code.decode(total)


def be_clients(comm: Comm, terms: Any, vectors: Sequence[Tensor]) -> None:
    """All clients of one sum."""
    from dlviz.federated.secure.client import client
    from dlviz.federated.secure.messages import EXCHANGES

    machines: list[Any] = [client(1 + k, terms, vector) for k, vector in enumerate(vectors)]
    answers: list[bytes | None] = [None] * len(machines)
    for _ in EXCHANGES:
        for machine, answer in zip(machines, answers, strict=True):
            give(comm, machine.send(answer), 0)
        answers = [take(comm, 0) for _ in machines]


def give(comm: Comm, message: bytes, dst: int) -> None:
    import torch

    comm.send(torch.frombuffer(bytearray(message), dtype=torch.uint8), dst, SECURE)


def take(comm: Comm, src: int) -> bytes:
    message = comm.probe(src, SECURE)
    comm.recv(message, src, SECURE)
    return message.numpy().tobytes()
