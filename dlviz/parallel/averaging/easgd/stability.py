"""For which alpha elastic averaging (train.py) is stable: one round on a quadratic is a matrix."""

from __future__ import annotations

import numpy as np

from dlviz.counts import check_counts

FORMS = ("round_robin", "synchronous", "asynchronous")


def check_form(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"form={form!r} is not known: use {', '.join(map(repr, FORMS))}.")


def spectral_radius(workers: int, eta: float, alpha: float, form: str) -> float:
    """Of one round on a loss of curvature 1, ΔW = W: by how much the farthest of workers and centre
    grows from round to round, in the end. The asynchronous form is taken at equal speeds, where the
    workers come in turn."""
    check_counts(workers=workers)
    check_form(form)
    steps = [[each] for each in range(workers)]  # whose W moves, one after the other
    if form == "synchronous":
        steps = [[*range(workers)]]
    whole = np.eye(workers + 1)  # the workers', then the centre
    for moved in steps:
        step = np.eye(workers + 1)
        for i in moved:
            step[i, i] -= eta + alpha
            step[i, -1] = step[-1, i] = alpha
        step[-1, -1] -= alpha * len(moved)
        whole = step @ whole
    return float(abs(np.linalg.eigvals(whole)).max())


def stable_alpha(workers: int, eta: float, form: str) -> float:
    """The alpha below which `spectral_radius` is below 1, found by halving; 0 where none is."""
    check_counts(workers=workers)
    low, high = 0.0, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        stable = spectral_radius(workers, eta, middle, form) < 1
        low, high = (middle, high) if stable else (low, middle)
    return low
