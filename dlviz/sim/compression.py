"""What compressed gradients cost, in bytes and seconds, and where that pays. No torch here.

    n float32 values               4n bytes, a ring all-reduce: 2(p-1) (alpha + 4n/p beta)
    their code of c bytes          to all others: (p-1) (alpha + c beta), p decodings

    all_gather                     each rank's code to all others: less than the ring's bytes
                                   while p < 2 * 4n/c
    all_reduce                     codes that may be added: a ring of c bytes
    reduce_scatter                 codes to a chunk's owner, whose sum is coded again and gathered

Symbols: p ranks, alpha s and beta s/byte a message. Sources: Seide et al., "1-Bit SGD", 2014;
Alistarh et al., "QSGD", 2017; Renggli et al., "SparCML", 2019; Vogels et al., "PowerSGD", 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dlviz.counts import check_amounts, check_counts, check_per_byte, closed_form, of_numbers

DENSE = 4  # bytes of a float32 value
PAIR = 8  # bytes of a value and its index

Options = Mapping[str, Any]


def _qsgd(n: int, bits: int, per: int, elias: bool) -> int:
    if not elias:
        return _bucketed(n, per, lambda k: 4 + math.ceil(k * bits / 8))
    each = 2 + 2 * (bits - 1) - 1  # a gap of 1, a sign, the largest level in Elias' gamma code
    return DENSE * math.ceil(n / per) + math.ceil(n * each / 8) + 2  # three parts of whole bytes


def _one_bit(n: int, per: int) -> int:
    return _bucketed(n, per, lambda k: 8 + math.ceil(k / 8))


def _topk_qsgd(n: int, keep: int, per: int, bits: int) -> int:
    if keep > per:
        raise ValueError(f"keep={keep} is more than the per={per} values of a bucket: keep fewer.")
    index = math.ceil(math.log2(per))
    return _bucketed(n, per, lambda k: 4 + math.ceil(min(keep, k) * (index + bits) / 8))


def _power(n: int, rank: int) -> int:
    rows = math.isqrt(n - 1) + 1
    columns = -(-n // rows)
    if rank > columns:
        raise ValueError(f"rank={rank} is above {columns}, of {n} values in {rows} x {columns}.")
    return DENSE * rank * (rows + columns)


FORMS: dict[str, tuple[Options, Callable[..., int]]] = {  # each code's options, and its bytes
    "fp16": ({"scale": 1.0}, lambda n: 2 * n),
    "bf16": ({"scale": 1.0}, lambda n: 2 * n),
    "qsgd": ({"bits": 4, "per": 512, "elias": False, "seed": 0}, _qsgd),
    "one_bit": ({"per": 512}, _one_bit),
    "topk": ({"share": 0.01}, lambda n, share: PAIR * math.ceil(share * n)),
    "threshold": ({"at": 1e-3}, lambda n, at: PAIR * n),
    "topk_qsgd": ({"keep": 16, "per": 512, "bits": 4, "seed": 0}, _topk_qsgd),
    "lossless": ({}, lambda n: DENSE * n),
    "power": ({"rank": 1, "seed": 0}, _power),
}


@of_numbers
def code_bytes(name: str, n: int, **options: Any) -> int:
    """Bytes of the code of `n` float32 values, with the options of `dlviz.compression.make`.

    Of "threshold", "lossless" and QSGD's Elias code it is the most that it can be, since their size
    depends on the values. "power" takes the values as one nearly square matrix of ceil(sqrt n)
    rows. ValueError for an unknown code or option, or an invalid value.
    """
    if name not in FORMS:
        raise ValueError(f"name={name!r} is not a code: use one of {', '.join(FORMS)}.")
    check_counts(1, n=_given("n", n))
    first, formula = FORMS[name]
    for option in options.keys() - first.keys():
        raise ValueError(
            f"{option}={options[option]!r}: {name} has no such option, but "
            f"{', '.join(first) or 'none'}."
        )
    values = {**first, **options}
    _check(values)
    return formula(n, **{key: values[key] for key in values.keys() - {"scale", "seed"}})


def _check(values: Options) -> None:
    """Raises ValueError for an option that no code can have."""
    for option in values.keys() & {"per", "keep", "rank"}:
        check_counts(1, **{option: _given(option, values[option])})
    bits, share = values.get("bits", 4), values.get("share", 0.01)
    check_counts(2, bits=_given("bits", bits))
    if bits > 8:
        raise ValueError(f"bits={bits!r} has to be a whole number from 2 to 8.")
    check_amounts(share=_given("share", share), at=_given("at", values.get("at", 0)))
    if not 0 < share <= 1:
        raise ValueError(f"share={share!r} has to be above 0, and 1 at most.")


@closed_form
def compressed_seconds(
    how: str,
    ranks: int,
    nbytes: float,
    alpha: float,
    beta: float,
    encode: float = 0.0,
    decode: float = 0.0,
) -> float:
    """Seconds until all ranks have the sum of their vectors, whose codes take `nbytes` each.

    `how` the codes meet is "all_gather", e + (p-1)(alpha + n beta) + p d; "all_reduce",
    e + d + 2(p-1)(alpha + n/p beta); or "reduce_scatter", e (1 + 1/p) + 2d + 2(p-1)(alpha + n/p
    beta). `encode` e and `decode` d are the seconds of one whole code. Numbers may be arrays: they
    are broadcast, and so are the seconds. ValueError for invalid values.
    """
    if how not in HOW:
        raise ValueError(f"how={how!r} is not known: use one of {', '.join(HOW)}.")
    check_counts(1, ranks=ranks)
    check_amounts(nbytes=nbytes, alpha=alpha, encode=encode, decode=decode)
    check_per_byte(beta=beta)
    ring = 2 * (ranks - 1) * (alpha + nbytes / ranks * beta)
    if how == "all_gather":
        return encode + (ranks - 1) * (alpha + nbytes * beta) + ranks * decode
    if how == "all_reduce":
        return encode + decode + ring
    return encode * (1 + 1 / ranks) + 2 * decode + ring


HOW = {
    "all_gather": "each code to all ranks",
    "all_reduce": "codes summed in a ring",
    "reduce_scatter": "codes to owners, sums to all",
}


def methods(linear: bool, codes: int = 1) -> tuple[str, ...]:
    """Which of `HOW` a code can meet by, the usual one first: the all-reduce if it is `linear`, so
    that it can be added on its path, and no other if each of several `codes` is made of the sum of
    the one before; the other two for one code."""
    return ("all_reduce",) * linear + ("all_gather", "reduce_scatter") * (codes == 1)


@closed_form
def expected_union(length: int, density: float, ranks: int) -> float:
    """Values that are not 0 in the sum of `ranks` vectors of `length`, in each of which a random
    `density` of them are not: N (1 - (1 - d)^p). ValueError for invalid values."""
    check_counts(1, length=length, ranks=ranks)
    _share("density", density)
    return length * -math.expm1(ranks * math.log1p(-density)) if density < 1 else float(length)


@closed_form
def communication_share(speedup: float, of_communication: float) -> float:
    """The share of the time in communication that explains both columns of a table: all of it is
    `speedup` times as fast once communication is `of_communication` times as fast.

    Amdahl's law, turned round: (1 - 1/S) / (1 - 1/C). ValueError where nothing explains them.
    """
    check_amounts(speedup=speedup, of_communication=of_communication)
    if not 1 <= speedup <= of_communication or of_communication == 1:
        raise ValueError(
            f"speedup={speedup!r} has to be from 1 to of_communication={of_communication!r}, which "
            "has to be above 1: a whole gains no more than its part."
        )
    return (1 - 1 / speedup) / (1 - 1 / of_communication)


def _share(name: str, value: float) -> None:
    check_amounts(**{name: value})
    if value > 1:
        raise ValueError(f"{name}={value!r} has to be from 0 to 1.")


def _given(name: str, value: Any) -> Any:
    if value is None:
        raise ValueError(f"{name}=None has to be a value.")
    return value


def _bucketed(n: int, per: int, nbytes: Callable[[int], int]) -> int:
    """Bytes of full buckets of `per` values, and of the ragged last one."""
    full, rest = divmod(n, per)
    return full * nbytes(per) + (nbytes(rest) if rest else 0)
