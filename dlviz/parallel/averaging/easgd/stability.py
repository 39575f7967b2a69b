"""For which alpha elastic averaging (train.py) is stable: one round on a quadratic is a matrix."""

from __future__ import annotations

import numpy as np

from dlviz.counts import check_counts

FORMS = ("round_robin", "synchronous", "asynchronous")


def check_form(form: str) -> None:
    if form not in FORMS:
        raise ValueError(f"form={form!r} is not known: use {', '.join(map(repr, FORMS))}.")


def spectral_radius(workers: int, eta: float, alpha: float, form: str) -> float:
    """The spectral radius of one round on a loss of curvature 1, ΔW = W: the factor by which
    distances finally grow per round. The asynchronous form assumes equal speeds: workers take
    turns."""
    check_counts(workers=workers)
    check_form(form)
    steps = [[each] for each in range(workers)]  # the workers whose W moves, step by step
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
    """The alpha below which `spectral_radius` is below 1, by bisection; 0 where there is none."""
    check_counts(workers=workers)
    low, high = 0.0, 2.0
    for _ in range(50):
        middle = (low + high) / 2
        stable = spectral_radius(workers, eta, middle, form) < 1
        low, high = (middle, high) if stable else (low, middle)
    return low
