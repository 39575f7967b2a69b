"""A link's alpha and beta, fitted to a ping-pong between real ranks."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz.cluster import measure_link
from dlviz.cluster.measure.link import fit
from dlviz.machine import Device, Link, Machine, Topology


def test_the_line_is_fitted_by_relative_error():
    sizes = (8, 1000, 100_000)
    exact = [2e-4 + 3e-9 * n for n in sizes]
    assert fit(sizes, exact) == pytest.approx((2e-4, 3e-9), rel=1e-9)
    noisy = [t * f for t, f in zip(exact, (1.05, 0.95, 1.05), strict=True)]
    assert fit(sizes, noisy) == pytest.approx((2e-4, 3e-9), rel=0.1)
    assert fit(sizes, [1.0, 0.5, 1e-3])[1] == 0.0, "no message gets quicker as it grows"


def test_a_real_link_has_a_latency_and_a_bandwidth_and_says_how_well_they_fit():
    link = measure_link(repeats=5)
    assert 0 < link.alpha < 0.1 and 0 <= link.beta < 1e-6 and 0 < link.gamma < 1e-6
    assert len(link.sizes) == len(link.seconds) == 7 and min(link.seconds) > 0
    line = link.alpha + link.beta * np.array(link.sizes)
    assert link.error == pytest.approx(np.sqrt(np.mean((line / link.seconds - 1) ** 2)))
    assert str(link).startswith("alpha ") and str(link).endswith("%")


@pytest.mark.filterwarnings("ignore:the run was up to:RuntimeWarning")
def test_the_link_of_a_machine_is_found_as_it_was_made():
    device = Device("adder", 1e9, 1e9, 1e9, gamma=2e-10)
    link = measure_link(Machine(device, Topology.switch(2, Link(1e-3, 1e8))), repeats=2)
    assert (link.alpha, link.beta) == pytest.approx((1e-3, 1e-8), rel=1e-6)
    assert link.gamma == 2e-10 and link.error < 1e-6
