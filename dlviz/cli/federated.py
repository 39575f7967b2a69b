"""`dlviz run federated`: a server and clients that keep their data, ten rounds of averaging.

Its options are the numbers, strings and flags that `dlviz.federated.train` takes. Three more deal
the digits: --clients, --partition, --alpha. Four limit what the server learns: --private NOISE
clips updates to --clip (1) and adds noise to their sum, for --delta (1e-5); --secure THRESHOLD
reveals sums alone, of values up to --clip (the largest client's examples). Clients may be lost.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dlviz.cli.run import (
    FEDERATED,
    FEDERATED_LINE,
    Own,
    as_typed,
    by_rank,
    clock_of,
    launched,
    read_own,
    report,
    taken_by,
    with_table,
)
from dlviz.cli.words import ENDINGS, Unusable, check_target, plural

if TYPE_CHECKING:
    from dlviz.cluster import Run
    from dlviz.federated import Round

WIDTHS = 64, 32, 10  # of the MLP
HERE = {"rounds": 10, "epochs": 5, "batch": 10}  # defaults
PARTITIONS = ("identical", "by_label", "dirichlet", "unequal")
BOUND, DELTA = 1.0, 1e-5  # of an update, and of --private
DEALT = {
    "clients": Own(int, "one for each rank but the server's"),
    "partition": Own(str, "identical"),
    "alpha": Own(float, 1.0),
}
HIDDEN = {
    "private": Own(float),
    "secure": Own(int),
    "clip": Own(float, f"{BOUND:g}, or with --secure the examples of the largest client"),
    "delta": Own(float, DELTA),
}
NAMED = 12  # clients at most that are listed by number


def own_options(rest: Sequence[str]) -> dict[str, Any]:
    """The options of a federated run in the rest of the line."""
    if not rest:
        return {}
    from dlviz.federated import train

    taken = taken_by(train)
    taken |= {name: taken[name]._replace(default=value) for name, value in HERE.items()}
    return read_own(FEDERATED, FEDERATED_LINE, DEALT | HIDDEN | taken, rest)


def run_command(options: argparse.Namespace) -> int:
    """Train, print the summary, save the trace."""
    if options.out is not None:
        check_target(options.out, ENDINGS)
    if options.model not in (None, "mlp") or options.data not in (None, "digits"):
        raise Unusable("federated trains an mlp on digits: leave out --model and --data.")
    from dlviz.datasets import digits
    from dlviz.federated import train
    from dlviz.models import MLP

    clients = dealt(options.own, options.ranks - 1)
    given = {name: value for name, value in options.own.items() if name not in DEALT | HIDDEN}
    chosen = HERE | hidden(options.own, clients) | given
    model, lost = MLP(WIDTHS), tuple(range(1, options.ranks))
    run = launched(options, train, (model, clients), chosen, may_lose=lost)
    if run is None:
        return 1
    if run.trace is None:  # a rank of torchrun's other than 0, which reports
        return 0
    report(options, run, summary(options, run, model, digits("test"), len(clients)))
    return 0


def dealt(own: dict[str, Any], ranks: int) -> list[tuple[Any, Any]]:
    """The digits of each client; by default there are as many clients as `ranks`."""
    from dlviz.datasets import digits
    from dlviz.federated import partition

    name, images_and_labels = own.get("partition", "identical"), digits("train")
    if name not in PARTITIONS:
        raise Unusable(f"--partition {name} is not known: use {', '.join(PARTITIONS)}.")
    if "alpha" in own and name != "dirichlet":
        raise Unusable(f"--alpha belongs to --partition dirichlet, not to {name}.")
    images, labels = images_and_labels
    how = {"alpha": own.get("alpha", 1.0)} if name == "dirichlet" else {}
    try:
        clients = own.get("clients", max(ranks, 1))
        parts = getattr(partition, name)(labels, clients, seed=own.get("seed", 0), **how)
    except ValueError as error:
        raise Unusable(as_typed(str(error), DEALT | HIDDEN)) from error
    return [(images[part], labels[part]) for part in parts]


def hidden(own: dict[str, Any], clients: list[tuple[Any, Any]]) -> dict[str, Any]:
    """The arguments of `train` that hide updates from the server."""
    from dlviz.federated import Private, Secure

    found: dict[str, Any] = {}
    for name, of in {"clip": ("private", "secure"), "delta": ("private",)}.items():
        if name in own and not own.keys() & of:
            raise Unusable(f"--{name} belongs to {' or '.join(f'--{each}' for each in of)}.")
    try:
        if "private" in own:
            private = Private(own.get("clip", BOUND), own["private"], own.get("delta", DELTA))
            found |= {"private": private, "selection": "poisson"}
        if "secure" in own:
            most = max(len(labels) for _, labels in clients)  # the bound of what a client counts
            found["secure"] = Secure(own["secure"], own.get("clip", most))
            if own.get("clip", most) < most:
                raise Unusable(
                    f"--clip {own['clip']:g} bounds how much a client counts, and one has {most} "
                    f"examples: use {most} or more."
                )
    except ValueError as error:
        raise Unusable(as_typed(str(error), DEALT | HIDDEN)) from error
    return found


def summary(
    options: argparse.Namespace, run: Run, model: Any, test: tuple[Any, Any], clients: int
) -> str:
    """The results of the run, as text."""
    from dlviz import metrics, models

    rounds: list[Round] = run.results[0]["rounds"]
    model.load_state_dict(run.results[0]["state"])
    first, last, weights = rounds[0], rounds[-1], sum(p.nbytes for p in model.parameters())
    nbytes = sum(each.nbytes for each in rounds)
    summary = {
        "round": f"{1e3 * metrics.seconds_per_step(run.trace):.1f} ms in the median",
        "loss": f"{first.loss:.3f} in the first round, {last.loss:.3f} in the last",
        "accuracy": f"{models.accuracy(model, *test):.1%} of the test images",
        "bytes per round": f"{nbytes / len(rounds):,.0f} in the mean; the weights have {weights:,}",
        "selected": counted(each.selected for each in rounds),
        "answered": counted(each.answered for each in rounds),
        "late": counted(each.late for each in rounds),
        "lost": "; ".join(
            f"client {k} in round {each.number}" for each in rounds for k in each.lost
        )
        or "none",
        "unused work": f"{sum(each.unused for each in rounds):,} of "
        f"{sum(each.computed for each in rounds):,} examples that were trained on",
    }
    if "secure" in options.own:
        summary["loss"] = summary["unused work"] = "the server does not learn it"
        plain = weights * sum(len(each.selected) + len(each.answered) for each in rounds)
        summary["secure sums"] = (
            f"{nbytes - plain:,} bytes more than updates in the open: {plain:,}"
        )
    if "private" in options.own:
        summary["epsilon"] = (
            f"{last.epsilon:.3g} for a delta of {options.own.get('delta', DELTA):g}"
        )
    for each in rounds:
        faults = [f"client {k} {why}" for k, why in each.rejected.items()]
        if each.unchanged:
            faults.append(f"the weights are unchanged: {each.unchanged}")
        if faults:
            summary[f"round {each.number}"] = "; ".join(faults)
    head = (
        f"federated on {plural(options.ranks, 'rank')}, digits, {plural(len(rounds), 'round')}, "
        f"{plural(clients, 'client')}: {run.seconds:.2f} s (below, the rounds by the "
        f"{clock_of(run.trace)})"
    )
    return with_table(head, by_rank(run.trace), summary)


def counted(lists: Iterable[list[int]]) -> str:
    """How often each client is in the lists: clients with the same count are named together, or
    counted if they are many."""
    times = Counter(k for each in lists for k in each)
    together: dict[int, list[str]] = {}
    for k, count in sorted(times.items()):
        together.setdefault(count, []).append(str(k))
    return (
        "; ".join(f"{named(who)} in {plural(count, 'round')}" for count, who in together.items())
        or "none"
    )


def named(who: list[str]) -> str:
    if len(who) > NAMED:
        return plural(len(who), "client")
    return f"client{'s' * (len(who) > 1)} {', '.join(who)}"
