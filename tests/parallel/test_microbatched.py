"""A convolution in pieces: values and gradients of one call, and only the workspace stated."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile

from dlviz.parallel.microbatched import Microbatched, measure
from dlviz.sim import best_cut, workspace_bytes
from dlviz.sim.workspace import METHODS

CUTS = [[(method, 5)] for method in METHODS] + [[("fft", 1), ("im2col", 3), ("direct", 1)]]
FORMS = [  # kernel, stride, padding, height, width
    (5, 1, 0, 9, 12), (3, 1, 1, 8, 5), (5, 2, 2, 11, 11), (3, 3, 0, 9, 10), (1, 1, 0, 3, 2),
    (4, 1, 5, 2, 3), (2, 3, 1, 7, 4),
]  # fmt: skip


def results(net, x, g):
    """Output, and gradients of input and parameters."""
    x = x.clone().requires_grad_()
    y = net(x)
    return y, *torch.autograd.grad(y, [x, *net.parameters()], g)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_pieces_give_the_values_and_gradients_of_one_call(cut, form, bias, dtype):
    kernel, stride, padding, *image = form
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, kernel, stride, padding, bias=bias, dtype=dtype)
    x = torch.randn(5, 3, *image, dtype=dtype)
    g = torch.randn_like(conv(x))
    pairs = zip(results(Microbatched(conv, cut), x, g), results(conv, x, g), strict=True)
    for own, one_call in pairs:
        error = 1e-12 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(own, one_call, rtol=error, atol=error)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_that_nobody_wants_are_left_out_and_others_add_up(method):
    conv = nn.Conv2d(2, 3, 3, padding=1).requires_grad_(False)
    net, x = Microbatched(conv, [(method, 1), (method, 1)]), torch.randn(2, 2, 4, 4)
    assert not net(x).requires_grad
    (own,) = torch.autograd.grad(net(x.requires_grad_()).sum(), x)  # of an expanded gradient
    torch.testing.assert_close(own, torch.autograd.grad(conv(x).sum(), x)[0])
    conv.requires_grad_(True)
    for _ in range(2):
        net(x.detach()).square().sum().backward()
    twice = torch.autograd.grad(2 * conv(x).square().sum(), conv.weight)[0]
    torch.testing.assert_close(net.weight.grad, twice)
    assert net.weight is conv.weight and net.state_dict().keys() == conv.state_dict().keys()


def held(call):
    """Most bytes that torch's allocator held during a call, and those at its end."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        left = call()
    now = most = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    del left
    return most, now


FEW = st.integers(1, 4)


@settings(max_examples=25, deadline=None)
@given(FEW, FEW, FEW, FEW, st.integers(4, 9), st.integers(4, 9), st.integers(1, 2), FEW)
def test_the_workspace_is_what_the_allocator_held_besides_the_output(
    batch, channels, filters, kernel, height, width, stride, padding
):
    conv = nn.Conv2d(channels, filters, kernel, stride, padding)
    x = torch.randn(batch, channels, height, width)
    for method in METHODS:
        net = Microbatched(conv, [(method, batch)])
        with torch.no_grad():
            net(x)
            most, left = held(lambda net=net: net(x))
        sizes = batch, channels, filters, kernel, height, width, stride, padding
        assert most - left == workspace_bytes(method, *sizes), (method, sizes)


@pytest.mark.parametrize("method", METHODS)
def test_four_pieces_hold_a_quarter_one_after_the_other(method):
    conv, x = nn.Conv2d(8, 2, 5), torch.randn(64, 8, 12, 12)
    net = Microbatched(conv, [(method, 16)] * 4)
    with torch.no_grad():
        net(x)
        most, left = held(lambda: net(x))
    assert most - left == workspace_bytes(method, 16, 8, 2, 5, 12, 12)
    y, g = net(x.requires_grad_()), torch.randn_like(net(x))
    most, left = held(lambda: torch.autograd.grad(y, [x, net.weight], g))
    if method == "im2col":  # once for the weights' gradient, freed, then once for the inputs'
        assert most - left == workspace_bytes(method, 16, 8, 2, 5, 12, 12)
    assert left == x.nbytes + net.weight.nbytes


def test_measured_costs_find_a_cut_that_keeps_to_the_limit():
    conv = nn.Conv2d(4, 4, 3)
    costs = measure(conv, (6, 4, 9, 9), repeats=1)
    assert costs.keys() == {(method, size) for method in METHODS for size in (1, 2, 4, 6)}
    sizes = 4, 4, 3, 9, 9
    assert all(nbytes == workspace_bytes(m, n, *sizes) for (m, n), (_, nbytes) in costs.items())
    assert all(seconds > 0 for seconds, _ in costs.values())
    double = measure(conv.double(), (2, 4, 9, 9), [2], ["im2col"], repeats=1)
    assert double["im2col", 2][1] == 2 * workspace_bytes("im2col", 2, *sizes)
    limit = costs["im2col", 2][1]
    _, cut = best_cut(costs, 6, limit)
    assert sum(size for _, size in cut) == 6 and all(costs[piece][1] <= limit for piece in cut)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Microbatched(nn.Conv2d(2, 2, 3, groups=2), []), "has groups=2: only 1 is"),
        (lambda: Microbatched(nn.Conv2d(2, 2, 3, dilation=2), []), r"has dilation=\(2, 2\)"),
        (
            lambda: Microbatched(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), []),
            "has padding_mode='circular': only 'zeros' is",
        ),
        (lambda: Microbatched(nn.Conv2d(2, 2, (3, 1)), []), r"has kernel_size=\(3, 1\): only one"),
        (lambda: Microbatched(nn.Conv2d(2, 2, 3, (1, 2)), []), r"has stride=\(1, 2\)"),
        (lambda: Microbatched(nn.Conv2d(2, 2, 3, padding="same"), []), "has padding='same'"),
        (lambda: Microbatched(nn.Conv2d(2, 2, 3), [("gemm", 1)]), "method='gemm' is not known"),
        (lambda: Microbatched(nn.Conv2d(2, 2, 3), [("fft", 0)]), "cut: size=0 has to be"),
        (
            lambda: Microbatched(nn.Conv2d(2, 2, 3), [("fft", 2)])(torch.ones(3, 2, 4, 4)),
            r"the input has shape \(3, 2, 4, 4\): give \(2, 2, height, width\)",
        ),
        (lambda: measure(nn.Conv2d(2, 2, 3), (2, 2, 4, 4), [3]), "a piece above the batch of 2"),
        (lambda: measure(nn.Conv2d(2, 2, 5), (2, 2, 4, 4)), "kernel=5 is above the padded input"),
    ],
)
def test_what_is_not_supported_is_refused_in_words(call, words):
    with pytest.raises(ValueError, match=words):
        call()
