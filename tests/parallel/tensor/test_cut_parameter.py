"""torch's clip_grad_norm_ on layers that are cut over ranks."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

import dlviz
from dlviz.models import Transformer
from dlviz.parallel.tensor import ParallelTransformer, clip_gradients
from dlviz.parallel.tensor.cut_parameter import CutParameter

SIZES = 1, 8, 2, 6, 4  # layers, hidden, heads, vocabulary, sequence


def clipped(comm):
    """Of each parameter whether clip_grad_norm_ refuses it; then what clip_gradients makes of
    all."""
    net = ParallelTransformer(comm, *SIZES)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    refuses = {}
    for name, p in net.named_parameters():
        refuses[name] = False
        try:
            nn.utils.clip_grad_norm_(p, 1e9)
        except ValueError as error:
            refuses[name] = "use dlviz.parallel.tensor.clip_gradients(comm, net, mo" in str(error)
    for call in (net.parameters(), [*net.parameters()]):
        try:
            nn.utils.clip_grad_norm_(call, 1.0)
        except ValueError:
            continue
        assert comm.size == 1
    nn.utils.clip_grad_value_(net.parameters(), 0.5)  # value by value: no rank needs another's
    norm = clip_gradients(comm, net, 1.0)
    cut = {f"{n}.{name}" for n, m in net.named_modules() for name in getattr(m, "cuts", {})}
    return refuses, cut, norm


@pytest.mark.parametrize("ranks", [1, 2])
def test_clip_grad_norm_refuses_what_is_cut_and_nothing_else(ranks):
    for refuses, cut, norm in dlviz.launch(clipped, ranks).results:
        there = {name for name, refused in refuses.items() if refused}
        assert there == (cut & refuses.keys() if ranks > 1 else set())
        assert len(refuses) > len(cut & refuses.keys()) > 3
        whole = sum(p.numel() for p in Transformer(*SIZES).parameters())
        assert norm == pytest.approx(1.0 if ranks == 1 else 0.5 * whole**0.5)


def trained(kind, foreach):
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    net.weight = kind(net.weight.detach().clone())
    rule = torch.optim.AdamW(net.parameters(), lr=0.1, foreach=foreach)
    for _ in range(3):
        rule.zero_grad()
        net(torch.ones(2, 4)).square().sum().backward()
        rule.step()
    return net


@pytest.mark.parametrize("foreach", [None, True])
def test_else_a_cut_parameter_is_a_parameter(foreach):
    net, plain = trained(CutParameter, foreach), trained(nn.Parameter, foreach)
    assert torch.equal(net.weight, plain.weight) and isinstance(net.weight, nn.Parameter)
    for one in (copy.deepcopy(net), net.double()):
        assert type(one.weight) is CutParameter and type(one.state_dict()["weight"]) is torch.Tensor
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    plain.double().load_state_dict(torch.load(file))  # by weights_only
    net.zero_grad()
    assert net.weight.grad is None
    net.weight.grad = torch.ones(3, 4, dtype=torch.float64)
    assert net.weight.grad.sum() == 12
    del net.weight.grad
    assert net.weight.grad is None
