"""The methods of the explorer of compression: bytes, seconds and variance of each. No torch here.

Seconds of coding and variances are stored, as `measure_coding` (on one core) and `variance` of
`dlviz.compression` measured them on 26,122 Gaussian values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlviz.sim.compression import code_bytes, compressed_seconds, methods

DENSE = "dense"
BITS = range(2, 9)
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
RANKS = range(1, 5)  # of PowerSGD
GATHERED, ADDED, SUMMED = methods(False), methods(True), methods(True, 2)  # the last: two factors
Values = Mapping[str, Any]  # of the controls


@dataclass(frozen=True)
class Method:
    """`how` its codes may meet; `coding`, the seconds to encode and to decode a value; `variance`
    E|v - C(v)|^2 / |v|^2, by the value of the control `option`, which `says` what is chosen."""

    title: str
    how: tuple[str, ...]
    coding: tuple[float, float]
    variance: Mapping[Any, float]
    option: str = ""
    says: str = ""


QSGD = dict(zip(BITS, (17.2, 5.02, 1.58, 0.378, 0.089, 0.0215, 0.00529), strict=True))
TOPK = dict(zip(SHARES, (0.987, 0.968, 0.916, 0.806, 0.561, 0.217, 0.0), strict=True))
POWER = dict(zip(RANKS, (0.988, 0.975, 0.963, 0.951), strict=True))
METHODS = {
    DENSE: Method("dense ring", SUMMED, (0.0, 0.0), {None: 0.0}),
    "fp16": Method("fp16", ADDED, (0.8e-9, 0.3e-9), {None: 4.3e-8}),
    "bf16": Method("bf16", ADDED, (1.3e-9, 0.5e-9), {None: 2.76e-6}),
    "qsgd": Method("QSGD", GATHERED, (13e-9, 13e-9), QSGD, "bits", "{} bits"),
    "one_bit": Method("one bit", GATHERED, (5.5e-9, 3e-9), {None: 0.362}),
    "topk": Method("top-k", GATHERED, (3.9e-9, 0.3e-9), TOPK, "share", "{:.3g} %"),
    "topk_qsgd": Method("top 16 of 512, 4 bits", GATHERED, (20e-9, 7e-9), {None: 0.814}),
    "power": Method("PowerSGD", SUMMED, (3.8e-9, 2.1e-9), POWER, "rank", "rank {}"),
}


def title(name: str, values: Values) -> str:
    """The method's name with its option."""
    one = METHODS[name]
    amount = values.get(one.option, 0) * (100 if one.option == "share" else 1)
    return " ".join(filter(None, (one.title, one.says.format(amount))))


def options(name: str, values: Values) -> dict[str, Any]:
    """The method's options, as `dlviz.compression.make` takes them."""
    option = METHODS[name].option
    return {option: values[option]} if option else {}


def how_of(name: str, values: Values) -> str:
    """How the method's codes meet: as chosen, if they can."""
    allowed = METHODS[name].how
    return values["how"] if values["how"] in allowed else allowed[0]


def nbytes(name: str, values: Values) -> int:
    """Bytes of a rank's code."""
    n = values["n"]
    return 4 * n if name == DENSE else code_bytes(name, n, **options(name, values))


def sent(name: str, values: Values) -> float:
    """Bytes that a rank sends, the mean of all ranks."""
    ranks = values["ranks"]
    each = 1 if how_of(name, values) == "all_gather" else 2 / ranks
    return each * (ranks - 1) * nbytes(name, values)


def coding(name: str, values: Values) -> tuple[float, float]:
    """Seconds to encode and to decode all values."""
    encode, decode = METHODS[name].coding
    return values["n"] * encode, values["n"] * decode


def seconds(name: str, values: Values) -> float:
    """Seconds until all ranks have the sum, coding included."""
    link = values["alpha"], 1 / values["bandwidth"]
    size = nbytes(name, values)
    took = compressed_seconds(
        how_of(name, values), values["ranks"], size, *link, *coding(name, values)
    )
    if name == "power":  # two all-reduces: Q is made of the sum of P
        took += 2 * (values["ranks"] - 1) * values["alpha"]
    return took


def row(name: str, values: Values) -> dict[str, Any]:
    """A method at these controls, as the table shows it."""
    size = nbytes(name, values)
    return {
        "name": name,
        "title": title(name, values),
        "how": how_of(name, values),
        "bits": 8 * size / values["n"],
        "sent": sent(name, values),
        "seconds": seconds(name, values),
        "variance": METHODS[name].variance[values.get(METHODS[name].option)],
    }
