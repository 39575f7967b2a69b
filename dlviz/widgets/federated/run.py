"""What the explorer of federated learning runs: FedAvg on the digits, a server on rank 0 and all
clients on rank 1. Training and messages are real; the clients' times are modelled (`Arrivals`).

With secure aggregation each client has keys, shares and masks of its own, on rank 1; rank 0 gets
masked residues, and takes each round's update from their sum. What it sees is what it receives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.trace import Trace
from dlviz.viz.words import text
from dlviz.widgets.federated.prediction import (
    BANDWIDTH,
    LATENCY,
    NEEDS,
    SCALED,
    STEP,
    SUM_BITS,
    WIDTHS,
    Values,
    asked,
    attackers,
    client_bytes,
    dealt,
    epsilons,
    factors,
    liars,
    steps,
    sum_clip,
)
from dlviz.widgets.running import Found, Progress

if TYPE_CHECKING:
    import torch

    from dlviz.cluster import Comm
    from dlviz.federated import Arrivals, Round

    Tensor = torch.Tensor

LR = 0.1
SEED = 0
PARTS = 16  # of a histogram of what the server sees
SPREAD = 4.0  # a histogram of values reaches so many standard deviations to either side
FATES = ("answered", "late", "busy", "rejected", "lost")


def run(values: Values, progress: Progress) -> Found:
    """Train on two ranks: what the front end shows, and the Trace."""
    from dlviz.cluster import launch

    done = launch(play, 2, args=(values,), timeout=600.0, progress=progress)
    rounds, seen = done.results[0]
    return found(values, rounds, seen, done.trace), done.trace


def found(
    values: Values, rounds: Sequence[Round], seen: dict[int, list[int]], trace: Trace
) -> dict[str, Any]:
    """The result of a run."""
    scores = [each.score for each in rounds]
    summary = [
        f"{100 * scores[-1]:.1f} % of the test digits are recognised after {len(rounds)} rounds."
    ]
    still = {each.number: each.unchanged for each in rounds if each.unchanged}
    if still:
        number, why = next(iter(still.items()))
        summary.append(
            f"{len(still)} of {len(rounds)} rounds left the weights as they were: {why} (round "
            f"{number})"
        )
    summed = None
    if values["secure"] and seen:
        last = max(each.number for each in rounds if not each.unchanged)
        summed = secure_figures(trace, last, len(seen))
        summary.append(sum_words(summed))
    return {
        "accuracy": [round(score, 4) for score in scores],
        "nbytes": [*accumulate(each.nbytes for each in rounds)],
        "seconds": [round(each, 4) for each in accumulate(each.seconds for each in rounds)],
        "epsilon": epsilons(values),
        "fates": fates_of(rounds, values["clients"]),
        "unchanged": sorted(still),
        "saw": seen,
        "summed": summed,
        "notes": summary,
    }


def fates_of(rounds: Sequence[Round], clients: int) -> list[list[int]]:
    """What became of each client in each round, a place in FATES, -1 where it was not asked:
    (clients, rounds). A client still at work on an earlier round is busy, not late again."""
    fates = np.full((clients, len(rounds)), -1)
    away: set[int] = set()
    for place, each in enumerate(rounds):
        busy = away.intersection(each.late)
        which = (each.answered, set(each.late) - busy, busy, each.rejected, each.lost)
        for fate, named in enumerate(which):
            fates[[*named], place] = fate
        away = (away | set(each.late)) - set(each.dropped)
    return fates.tolist()


def secure_figures(trace: Trace, number: int, many: int) -> dict[str, Any]:
    """The cost of a round's sum under secure aggregation: bytes that each of `many` clients sent
    and got, from the messages; seconds by the wall clock."""
    from dlviz.federated.masked_rounds import SUMS

    messages = trace.messages
    own = messages.tag == SUMS + number
    sent, got = (int(messages.nbytes[own & (messages.dst == rank)].sum()) for rank in (0, 1))
    return {
        "clients": many,
        "sent": sent // many,
        "got": got // many,
        "seconds": float(messages.wall_received[own].max() - messages.wall_sent[own].min()),
    }


def sum_words(summed: dict[str, Any]) -> str:
    return (
        f"Rounds were summed in secret: in the last, of {summed['clients']} clients, each sent "
        f"{text.nbytes(summed['sent'])} and got {text.nbytes(summed['got'])}, in "
        f"{text.seconds(summed['seconds'])} for all."
    )


# -- on the ranks ----------------------------------------------------------------------------------
def play(comm: Comm, values: Values) -> tuple[list[Round], dict[int, list[int]]]:
    """What a rank runs. Returns, on rank 0, the rounds, and a histogram of what the server saw of
    each client in the last one: residues under secure aggregation, else its update's values."""
    import torch

    from dlviz.datasets import digits
    from dlviz.federated import Secure, partition, train
    from dlviz.models import MLP, accuracy

    torch.manual_seed(SEED)
    images, labels = digits("train")
    test = digits("test")
    parts = partition.dirichlet(labels, values["clients"], values["alpha"])
    heard: list[Any] = []  # of the last round: a row for each client
    how: dict[str, Any] = {"combine": combined(values, heard)}
    if values["secure"]:
        record_masked(comm, heard)
        how = {"secure": Secure(None, sum_clip(values), SUM_BITS)}
    rounds = train(
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
        outgoing=outgoing(values),
        arrivals=arrivals(values),
        evaluate=lambda model: accuracy(model, *test),
        **how,
    )["rounds"]
    secure = values["secure"]
    # The last round whose updates arrived; under secure aggregation one that was summed.
    came = [each.answered for each in rounds if each.answered and not (secure and each.unchanged)]
    draw = residues_histogram if secure else histogram
    last = came[-1] if heard else []  # rank 0 alone hears
    return rounds, {k: draw(row) for k, row in zip(last, heard, strict=True)}


def arrivals(values: Values) -> Arrivals:
    """The model of the clients' times, by which a client answers after `client_seconds`. The server
    of secure aggregation knows of one example of each client, and of the bytes out alone: the other
    bytes count as latency, there and back."""
    from dlviz.federated import Arrivals

    longer, latency = factors(values), LATENCY
    if values["secure"]:
        sizes = dealt(values["clients"], values["alpha"]).sum(axis=1).tolist()
        made = [max(steps(values, size), 1) / steps(values, 1) for size in sizes]
        longer = [factor * more for factor, more in zip(longer, made, strict=True)]
        each = client_bytes(values, asked(values))
        latency = 4 * LATENCY + (each.back + each.beside) / BANDWIDTH / 2
    return Arrivals(STEP, longer, latency, BANDWIDTH)


def record_masked(comm: Comm, heard: list[Any]) -> None:
    """Collect in `heard` the masked vectors that this rank received in the last sum."""
    from dlviz.federated.masked_rounds import SUMS
    from dlviz.federated.secure.messages import HEAD, MASKED

    receive = comm.recv

    def recv(tensor: Tensor, src: Any = None, tag: int = 0, **options: Any) -> Any:
        source = receive(tensor, src, tag, **options)
        if tag >= SUMS and tensor[0] == MASKED:
            message = tensor.numpy().tobytes()
            _, number, *_ = HEAD.unpack_from(message)
            heard[number - 1 :] = [np.frombuffer(message, f"<u{SUM_BITS // 8}", offset=HEAD.size)]
        return source

    if comm.rank == 0:
        comm.recv = recv  # pyright: ignore[reportAttributeAccessIssue]


def dataset(values: Values, images: Tensor, labels: Tensor, client: int) -> tuple[Tensor, Tensor]:
    """A client's digits; an attacker's may have false labels."""
    from dlviz.federated import attacks

    if values["attack"] == "flip_labels" and client < attackers(values):
        labels = attacks.flip_labels(labels, WIDTHS[-1])
    return images, labels


def outgoing(values: Values) -> Callable[[Tensor, int, int], Tensor]:
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
        return update

    return falsified


def combined(values: Values, heard: list[Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """How the server combines updates without secure aggregation; the last are left in `heard`."""
    import torch

    from dlviz.federated import robust
    from dlviz.federated.privacy import central, clip

    bound, sigma, method = values["clip"], values["sigma"], values["method"]
    noise = torch.Generator().manual_seed(SEED)
    given = {"attackers": liars(values)} if method in NEEDS else {}

    def combine(updates: Tensor, weights: Tensor) -> Tensor:
        if len(updates):
            heard[:] = updates.clone()
        if bound is not None:
            updates = clip(updates, bound)
        if bound is None or not sigma:
            return getattr(robust, method)(updates, weights, **given)
        alone = central(  # the noise on an empty sum: the updates are clipped already
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


def residues_histogram(row: np.ndarray) -> list[int]:
    """How many residues lie in each of PARTS equal parts."""
    return np.histogram(row, PARTS, (0, 2**SUM_BITS))[0].tolist()
