"""dlviz.models: weights depend only on seed and layer; the one-process trainer learns."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from dlviz.datasets import batches, digits
from dlviz.models import (
    MLP,
    ConvNet,
    Residual,
    SmallAlexNet,
    SmallResNet,
    accuracy,
    error_by_label,
    gradient_noise,
    largest_curvature,
    seed_layers,
    step_cost,
    steps_to_error,
    train,
)


def equal(a: nn.Module, b: nn.Module) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.mark.parametrize("build", [MLP, ConvNet, SmallAlexNet, SmallResNet])
def test_weights_follow_from_the_seed_whatever_was_built_before(build):
    first = build(seed=3)
    torch.manual_seed(99)
    nn.Linear(7, 7)
    assert equal(first, build(seed=3))
    assert not equal(first, build(seed=4))


def test_layers_of_equal_shape_start_from_different_weights():
    model = MLP((8, 8, 8))
    assert not torch.equal(model[1].weight, model[3].weight)


@pytest.mark.parametrize("build", [MLP, ConvNet])
def test_a_stage_seeded_alone_has_the_weights_of_the_whole(build):
    whole = build(seed=5)
    cut = 3  # both have their layer 0 before this module, and their layers 1 and 2 after it
    for stage, first in ((whole[:cut], 0), (whole[cut:], 1)):
        alone = copy.deepcopy(stage)
        for parameter in alone.parameters():
            nn.init.zeros_(parameter)
        seed_layers(alone, 5, first=first)
        assert equal(alone, stage)


def test_a_layers_weights_do_not_change_when_another_layer_grows():
    assert torch.equal(MLP((4, 5, 6))[3].weight, MLP((40, 5, 6))[3].weight)


class Stranger(nn.Module):
    """Unlike any model of the package: bare parameters, attention, normalisation, a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(3, 16))
        self.bias = nn.Parameter(torch.empty(()))
        self.attention = nn.MultiheadAttention(16, 2)
        self.norm = nn.BatchNorm1d(16)
        self.table = nn.Embedding(5, 16)
        self.head = nn.Linear(16, 5)
        self.head.weight = self.table.weight


def test_any_module_is_seeded_and_all_its_parameters_drawn():
    one, other = Stranger(), Stranger()
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.fill_(float("nan"))
    assert seed_layers(one, 7) is one
    seed_layers(other, 7)
    assert equal(one, other)
    assert one.head.weight is one.table.weight
    assert one.scale.abs().max() <= 0.25 and one.scale.std() > 0.05
    assert torch.equal(one.norm.weight, torch.ones(16)), "a layer is drawn as torch draws it"


def test_seeding_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    model = MLP()
    torch.manual_seed(1)
    seed_layers(model, 0)
    assert torch.equal(torch.rand(3), expected)


def test_float64_weights_are_the_float32_weights():
    single, double = MLP(seed=2), MLP(seed=2, dtype=torch.float64)
    for a, b in zip(single.parameters(), double.parameters(), strict=True):
        assert b.dtype == torch.float64 and torch.equal(a.double(), b)


@pytest.mark.parametrize("widths", [(64, 10), (64, 5, 3, 10)])
def test_mlp_has_the_widths_it_was_given(widths):
    model = MLP(widths)
    sizes = [m.in_features for m in model if isinstance(m, nn.Linear)]
    assert (*sizes, 10) == widths
    assert isinstance(model[-1], nn.Linear)
    assert model(torch.zeros(6, 1, 8, 8)).shape == (6, 10)


def test_mlp_of_one_width_is_refused():
    with pytest.raises(ValueError, match=r"^widths=\(64,\) makes no layer"):
        MLP((64,))


def test_the_convolutions_of_small_alexnet_multiply_most_and_store_least():
    net, multiplications = SmallAlexNet(), [0, 0]  # of the convolutions, of the dense layers
    x = torch.zeros(1, 1, 32, 32)
    for layer in net:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            multiplications[0] += x.numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            multiplications[1] += layer.weight.numel()
    parameters = [sum(p.numel() for p in part.parameters()) for part in (net[:8], net[8:])]
    assert multiplications == [3686400, 263424] and parameters == [7120, 263562]
    assert round(100 * multiplications[0] / sum(multiplications), 1) == 93.3
    assert round(100 * parameters[0] / sum(parameters), 1) == 2.6


def test_a_residual_adds_what_its_shortcut_makes_of_the_input():
    body, x = nn.Linear(3, 3), torch.rand(2, 3)
    assert torch.equal(Residual(body)(x), body(x) + x)
    short = nn.Linear(3, 3)
    assert torch.equal(Residual(body, short)(x), body(x) + short(x))


@pytest.mark.parametrize(("height", "width"), [(8, 8), (9, 32)])
def test_small_resnet_halves_images_of_any_size(height, width):
    net, x = SmallResNet(), torch.rand(4, 1, height, width)
    assert net[:6](x).shape == (4, 32, -(-height // 2), -(-width // 2))
    assert net(x).shape == (4, 10)


def test_small_resnet_learns():
    net, (images, labels) = SmallResNet(), digits("train")
    losses = train(net, (images[:32], labels[:32]), steps=30, lr=0.3, batch=32)
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(("build", "lr"), [(MLP, 0.5), (ConvNet, 0.5)])
def test_training_reads_over_90_percent_of_unseen_digits(build, lr):
    model = build(seed=0)
    losses = train(model, digits("train"), steps=200, lr=lr, batch=64, seed=0)
    assert len(losses) == 200
    assert sum(losses[-20:]) / 20 < losses[0] / 4
    assert accuracy(model, *digits("test")) > 0.9


def test_a_step_of_training_is_one_step_against_the_gradient():
    images, labels = digits("train")
    model = MLP((64, 10), dtype=torch.float64)
    (x, y), *_ = batches(images.double(), labels, batch=8, seed=4)
    weight = model[1].weight.detach().clone()
    loss = functional.cross_entropy(x.flatten(1) @ weight.mT + model[1].bias, y)
    probabilities = (x.flatten(1) @ weight.mT + model[1].bias).softmax(1)
    gradient = (probabilities - functional.one_hot(y, 10)).mT @ x.flatten(1) / 8
    losses = train(model, (images.double(), labels), steps=1, lr=0.1, batch=8, seed=4)
    assert losses == [pytest.approx(loss.item(), rel=1e-12)]
    torch.testing.assert_close(model[1].weight.detach(), weight - 0.1 * gradient)


def test_training_takes_any_loss_and_target():
    inputs = torch.linspace(-1, 1, 32).view(-1, 1)
    model = MLP((1, 1))
    train(model, (inputs, 3 * inputs - 1), steps=300, lr=0.1, batch=8, loss=functional.mse_loss)
    assert model[1].weight.item() == pytest.approx(3, abs=0.01)
    assert model[1].bias.item() == pytest.approx(-1, abs=0.01)


def test_accuracy_is_the_fraction_that_is_right():
    logits = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 1.0], [0.0, 3.0]])
    assert accuracy(nn.Identity(), logits, torch.tensor([0, 1, 1, 1])) == 0.75


def test_the_error_of_a_label_is_that_of_its_own_images_with_the_weights_given():
    model = nn.Linear(2, 2, bias=False)
    images = torch.tensor([[2.0, 1.0], [0.0, 1.0], [5.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    labels = torch.tensor([0, 1, 1, 1, 1])
    assert error_by_label(model, {"weight": torch.eye(2)}, images, labels) == {0: 0.0, 1: 0.5}
    swapped = error_by_label(model, {"weight": torch.eye(2).flip(0)}, images, labels)
    assert swapped == {0: 1.0, 1: 0.5}


def test_the_largest_curvature_is_the_largest_eigenvalue_of_the_hessian():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    seed_layers(model, 1)
    x, y = torch.rand(20, 3, dtype=torch.float64), torch.arange(20) % 2
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()

    def loss(vector: torch.Tensor) -> torch.Tensor:
        w, b, v, c = vector.split([p.numel() for p in model.parameters()])
        hidden = torch.tanh(x @ w.view(4, 3).T + b)
        return functional.cross_entropy(hidden @ v.view(2, 4).T + c, y)

    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, flat))
    largest = max(values.tolist(), key=abs)
    before = torch.random.get_rng_state()
    assert largest_curvature(model, (x, y), rounds=500) == pytest.approx(largest, rel=1e-6)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_step_costs_two_flop_a_weight_and_image_and_in_the_backward_four_but_in_the_first_layer():
    model = MLP((6, 5, 4, 3))
    cost = step_cost(model, (torch.rand(7, 6), torch.arange(7) % 3), repeats=2)
    first, others = 6 * 5, 5 * 4 + 4 * 3
    assert [*cost.index] == ["forward", "backward", "update"] and (cost.seconds > 0).all()
    assert [*cost.FLOP] == [7 * 2 * (first + others), 7 * (2 * first + 4 * others), 0]


def test_the_seconds_of_a_steps_parts_are_the_least_of_all_repeats(monkeypatch):
    ends = iter([0.0, 3.0, 5.0, 9.0, 10.0, 11.0, 15.0, 17.0])  # start, forward, backward, update
    monkeypatch.setattr("time.perf_counter", lambda: next(ends))
    cost = step_cost(MLP((6, 5, 3)), (torch.rand(7, 6), torch.arange(7) % 3), repeats=2)
    assert [*cost.seconds] == [1, 2, 2]


def test_steps_to_error_stop_where_the_mean_of_the_last_tests_is_low_enough():
    data, test = digits("train"), digits("test")
    took = steps_to_error(MLP((64, 32, 10)), data, test, 0.3, lr=0.5, batch=64, over=3)
    model, errors = MLP((64, 32, 10)), []
    for steps in range(1, int(took) + 1):
        model = MLP((64, 32, 10))
        train(model, data, steps=steps, lr=0.5, batch=64)
        errors.append(1 - accuracy(model, *test))
    means = [sum(errors[i : i + 3]) / 3 for i in range(len(errors) - 2)]
    assert took > 3 and [mean <= 0.3 for mean in means] == [*(len(means) - 1) * [False], True]
    few = steps_to_error(MLP((64, 32, 10)), data, test, 0.3, lr=0.5, batch=64, most=5)
    assert math.isnan(few)


def test_the_noise_of_a_gradient_falls_by_the_root_of_the_batch():
    model, data = MLP((64, 16, 10)), digits("train")
    one, many = (gradient_noise(model, data, batch) for batch in (16, 144))
    assert one / many == pytest.approx(3, rel=0.1)
    data = (data[0][:1].expand(8, 1, 8, 8), data[1][:1].expand(8))
    assert gradient_noise(model, data, 4) == pytest.approx(0, abs=1e-6), "equal examples"
