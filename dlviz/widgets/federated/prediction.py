"""What the explorer of federated learning predicts of its controls: bytes, seconds and late clients
of a round, who has which digits, epsilon. Without torch.

The closed forms are those of dlviz/sim/federated.py and of dlviz/federated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dlviz.sim import federated as form
from dlviz.sim.federated import ClientBytes
from dlviz.viz.words import text
from dlviz.widgets.control import one_of

Values = dict[str, Any]

WIDTHS = (64, 32, 10)  # of the network
PARAMETERS = sum(a * b + b for a, b in zip(WIDTHS, WIDTHS[1:], strict=False))
LABELS = (140, 151, 126, 152, 147, 143, 148, 146, 134, 150)  # training digits of each
STEP, LATENCY, BANDWIDTH = 0.02, 0.01, 1e6  # s, s, bytes/s: of a phone and its link
FACTOR = 3.0  # times as long a slow client's step takes
SCALED = -10.0  # by which an attacker multiplies its update
SUM_BITS = 32  # of secure aggregation's modulus
METHODS = {
    "mean": "mean",
    "median": "median",
    "trimmed_mean": "trimmed mean",
    "krum": "Krum",
    "multi_krum": "multi-Krum",
}
NEEDS: dict[str, tuple[int, str]] = {  # for f attackers: 2f and so many more clients
    "trimmed_mean": (1, "2f + 1"),
    "krum": (3, "2f + 3"),
    "multi_krum": (3, "2f + 3"),
}
ATTACKS = {
    "scale": f"send their update × {SCALED:g}".replace("-", "\u2212"),
    "sign_flip": "send their update × \u22121",
    "flip_labels": "train on false labels",
}
KNOBS: dict[str, Sequence[Any]] = {  # control: the values that it can have
    "clients": (10, 100),
    "rounds": (10, 20, 40, 80),
    "fraction": tuple(tenth / 10 for tenth in range(1, 11)),
    "epochs": (1, 2, 3, 5, 10, 20),
    "batch": (5, 10, 20, 40, 80, None),
    "bits": (32, 16),
    "alpha": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0),
    "deadline": (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, None),
    "slow": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    "sigma": (0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0),
    "clip": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, None),
    "attackers": (0.0, 0.1, 0.2, 0.3, 0.4),
    "attack": tuple(ATTACKS),
    "method": tuple(METHODS),
    "secure": (False, True),
}
FIRST: Values = {
    "clients": 10, "rounds": 20, "fraction": 0.5, "epochs": 5, "batch": 10, "bits": 32,
    "alpha": 0.5, "deadline": None, "slow": 0.2, "sigma": 0.0, "clip": None, "attackers": 0.0,
    "attack": "scale", "method": "mean", "secure": False,
}  # fmt: skip


# -- valid values ----------------------------------------------------------------------------------
def check(values: Values) -> None:
    """Raises ValueError, one sentence, for an invalid value, or for values that do not go
    together."""
    for name, known in KNOBS.items():
        one_of(name, values[name], known)
    if values["sigma"]:
        check_noise(values)
    if values["secure"]:
        check_secure(values)
    check_method(values)


def check_noise(values: Values) -> None:
    if values["method"] != "mean":
        raise ValueError(
            f"σ = {values['sigma']:g} with the {METHODS[values['method']]}: ε is known of noise on "
            "a sum of clipped updates; choose the mean, or σ = 0."
        )
    if values["clip"] is None:
        raise ValueError(
            f"σ = {values['sigma']:g} without clipping: the noise is σS, in units of the norm S to "
            "which updates are clipped; choose S, or σ = 0."
        )


def check_secure(values: Values) -> None:
    if values["sigma"]:
        raise ValueError(
            f"σ = {values['sigma']:g} under secure aggregation: a round for which one client was "
            "drawn has no secret sum, and leaving it out reveals more than ε says; choose σ = 0, "
            "or no secure aggregation."
        )
    if values["method"] != "mean":
        raise ValueError(
            f"The {METHODS[values['method']]} compares the clients' updates, and under secure "
            "aggregation the server sees none of them: choose the mean, or no secure aggregation."
        )
    if values["bits"] == 16:
        raise ValueError(
            "Secure aggregation sends values modulo 2^32, which 16 bits do not hold: choose "
            "updates of 32 bits, or no secure aggregation."
        )
    if asked(values) < 2:
        raise ValueError(
            "Secure aggregation of 1 client hides nothing, since a sum of one is its update: "
            "raise C."
        )


def check_method(values: Values) -> None:
    """Raises ValueError where a round asks too few clients for its method and attackers."""
    method, many, lie = values["method"], asked(values), liars(values)
    more, law = NEEDS.get(method, (0, ""))
    if law and many < 2 * lie + more:
        most = (many - more) // 2
        can = f"tolerate {most}" if most >= 0 else "are too few even without one"
        raise ValueError(
            f"The {METHODS[method]} against f = {lie} attackers needs {law} = {2 * lie + more} "
            f"clients, and the {many} that are asked {can}: raise C, or choose fewer attackers."
        )


def asked(values: Values) -> int:
    """Clients that a round asks: C K, at least one; their mean under Poisson."""
    return max(1, round(values["fraction"] * values["clients"]))


def liars(values: Values) -> int:
    """The most attackers that a round may ask; f attackers are clients 0 to f - 1."""
    return min(attackers(values), asked(values))


def attackers(values: Values) -> int:
    return round(values["attackers"] * values["clients"])


# -- bytes -----------------------------------------------------------------------------------------
def client_bytes(values: Values, many: int) -> ClientBytes:
    """Bytes of one of the `many` clients of a round."""
    if values["secure"]:
        bound = sum_clip(values)
        return form.secure_client_bytes(PARAMETERS, many, many // 2 + 1, bound, SUM_BITS)
    return form.client_bytes(PARAMETERS, values["bits"])


def sum_clip(values: Values) -> float:
    """The largest value whose sum over the clients of a round fits the modulus."""
    return float(form.largest_clip(asked(values), SUM_BITS))


def round_bytes(values: Values) -> int:
    """Bytes of all clients that a round asks."""
    return asked(values) * sum(client_bytes(values, asked(values)))


# -- data and seconds ------------------------------------------------------------------------------
@cache
def dealt(clients: int, alpha: float) -> np.ndarray:
    """How many digits of each label every client has: (clients, labels)."""
    from dlviz.federated.sizes import dirichlet_sizes

    return dirichlet_sizes(LABELS, clients, alpha).T


def steps(values: Values, examples: int) -> int:
    """Local steps of a client with so many digits."""
    return form.local_steps(examples, values["epochs"], values["batch"])


def slow_ones(values: Values) -> list[int]:
    """The slow clients, the last of all."""
    clients = values["clients"]
    return [*range(clients - round(values["slow"] * clients), clients)]


def factors(values: Values) -> list[float]:
    """How many times as long as another's a step of each client takes."""
    slow = slow_ones(values)
    return [FACTOR if client in slow else 1.0 for client in range(values["clients"])]


def client_seconds(values: Values) -> list[float]:
    """Seconds from the beginning of a round to each client's answer; 0 for one without data."""
    nbytes = sum(client_bytes(values, asked(values)))
    link = {"latency": LATENCY, "bandwidth": BANDWIDTH, "exchanges": 4 if values["secure"] else 1}
    sizes = dealt(values["clients"], values["alpha"]).sum(axis=1).tolist()
    return [
        form.client_seconds(steps(values, size), nbytes, step=STEP * each, **link) if size else 0.0
        for size, each in zip(sizes, factors(values), strict=True)
    ]


def late_ones(values: Values) -> list[int]:
    """The clients that miss the deadline of every round."""
    limit = values["deadline"]
    return [k for k, took in enumerate(client_seconds(values)) if limit and took > limit]


def round_seconds(values: Values) -> float:
    """The mean seconds of a round over the clients that may be drawn."""
    took, limit = client_seconds(values), values["deadline"] or math.inf
    if values["sigma"]:
        return form.poisson_round_seconds(took, values["fraction"], limit)
    return form.round_seconds(took, asked(values), limit)


# -- epsilon ---------------------------------------------------------------------------------------
def delta(values: Values) -> float:
    """δ, below 1/N."""
    return 1 / values["clients"] ** 2


def epsilons(values: Values) -> list[float]:
    """ε after each round; [] without noise."""
    from dlviz.federated.accountant import epsilon

    if not values["sigma"]:
        return []
    given = float(values["sigma"]), float(values["fraction"])
    many = values["clients"]
    return [
        epsilon(*given, number, delta(values), clients=many)
        for number in range(1, values["rounds"] + 1)
    ]


# -- all of it -------------------------------------------------------------------------------------
def predicted(values: Values) -> dict[str, Any]:
    """What the front end shows of the controls."""
    each = client_bytes(values, asked(values))
    return {
        "asked": asked(values),
        "table": dealt(values["clients"], values["alpha"]).tolist(),
        "seconds": client_seconds(values),
        "slow": slow_ones(values),
        "attackers": attackers(values),
        "late": late_ones(values),
        "each": each._asdict(),
        "nbytes": round_bytes(values),
        "lasts": round_seconds(values),
        "epsilon": epsilons(values),
        "answer": answer(values),
    }


def answer(values: Values) -> dict[str, str]:
    """The result in words, a line for each tab."""
    return {"rounds": on_rounds(values), "data": on_data(values), "trust": on_trust(values)}


def on_rounds(values: Values) -> str:
    sizes = dealt(values["clients"], values["alpha"]).sum(axis=1)
    made = [steps(values, size) for size in sizes.tolist() if size]
    each = sum(client_bytes(values, asked(values)))
    between = f"{min(made)} to {max(made)}" if min(made) < max(made) else f"{made[0]}"
    drawn = "About " * bool(values["sigma"]) + f"{asked(values)} of {values['clients']} clients"
    whole = round_bytes(values)
    return (
        f"{drawn} a round, {between} steps each; {text.nbytes(each)} a client, "
        f"{text.nbytes(whole)} a round, {text.nbytes(whole * values['rounds'])} in "
        f"{values['rounds']} rounds."
    )


def on_data(values: Values) -> str:
    took, limit = client_seconds(values), values["deadline"]
    lasts = f"A round lasts {text.seconds(round_seconds(values))} on average (modelled)"
    if limit is None:
        said = f"{lasts}: the slowest client takes {text.seconds(max(took))}, and all are awaited."
    else:
        late = late_ones(values)
        missed = f"{clients_words(late)} always late" if late else "nobody is late"
        said = f"{lasts}; at a deadline of {limit:g} s {missed}."
    empty = sum(t == 0 for t in took)
    return said + f" {empty} of the clients have no digit." * bool(empty)


def on_trust(values: Values) -> str:
    summary = []
    if values["sigma"]:
        spent = epsilons(values)
        length = form.noise_length(
            values["sigma"], PARAMETERS, values["fraction"] * values["clients"]
        )
        summary.append(
            f"ε = {number(spent[0])} after 1 round, {number(spent[-1])} after {len(spent)} (δ = "
            f"{delta(values):g}, Poisson); the noise on the mean is {number(length)} S long."
        )
    else:
        summary.append("σ = 0: no noise, so no ε.")
    if values["secure"]:
        each = client_bytes(values, asked(values))
        summary.append(
            f"Secure: the server sees a sum of {asked(values)}, 4 exchanges, "
            f"{text.nbytes(each.beside)} more a client."
        )
    if attackers(values):
        summary.append(
            f"{attackers(values)} of {values['clients']} clients {ATTACKS[values['attack']]}."
        )
    return " ".join(summary)


def clients_words(numbers: Sequence[int]) -> str:
    """Clients by number, or how many."""
    if len(numbers) > 5:
        return f"{len(numbers)} clients are"
    if len(numbers) == 1:
        return f"client {numbers[0]} is"
    return f"clients {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} are"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# -- the name of a run -----------------------------------------------------------------------------
SAYS: dict[str, Callable[[Any], str]] = {
    "clients": lambda many: f"{many} clients",
    "rounds": lambda many: f"{many} rounds",
    "fraction": lambda share: f"C {share:g}",
    "epochs": lambda many: f"E {many}",
    "batch": lambda many: f"B {many or '∞'}",
    "bits": lambda many: f"{many} bits",
    "alpha": lambda value: f"α {value:g}",
    "deadline": lambda took: f"deadline {took:g} s" if took else "no deadline",
    "slow": lambda share: f"{100 * share:.0f} % slow",
    "sigma": lambda value: f"σ {value:g}",
    "clip": lambda norm: f"S {norm:g}" if norm else "no clip",
    "attackers": lambda share: f"{100 * share:.0f} % attack",
    "attack": lambda name: {"scale": "× −10", "sign_flip": "× −1"}.get(name, "false labels"),
    "method": lambda name: METHODS[name],
    "secure": lambda on: "secure" if on else "in the open",
}


def chosen(values: Values) -> Values:
    """The controls that matter to a run."""
    return {**values, "attack": values["attack"] if values["attackers"] else ""}


def names(runs: Sequence[Values]) -> list[str]:
    """What distinguishes each run from most others (the second of two from the first); C, E and B
    of a run like most."""
    runs = [chosen(values) for values in runs]
    found = []
    for values in runs:
        others = {name: Counter(one[name] for one in runs).most_common(1)[0][0] for name in KNOBS}
        own = [name for name in KNOBS if values[name] not in (others[name], "")]
        shown = own or ["fraction", "epochs", "batch"]
        found.append(", ".join(SAYS[name](values[name]) for name in shown))
    return found
