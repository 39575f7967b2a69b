"""dlviz.parallel.update_rules: torch.optim's numbers, and the lecture's table as it is printed."""

from __future__ import annotations

import math
import pickle
import warnings

import pytest
import torch

from dlviz.parallel import update_rules
from dlviz.parallel.update_rules import NAMES, make

TORCH = {
    "sgd": (torch.optim.SGD, {}, {}),
    "decay": (torch.optim.SGD, {}, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.8}, {}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.8}, {"nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {"eps": 1e-3}, {}),
    "rmsprop": (torch.optim.RMSprop, {"alpha": 0.9, "eps": 1e-3}, {}),
    "adam": (torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}, {}),
}


def start() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((3, 4), (5,), ())
    return [torch.randn(s, dtype=torch.float64, generator=generator) for s in shapes]


def gradients(parameters, step):
    """Gradients of a curved surface; every third step the second tensor has none."""
    found = [torch.sin(3 * w) + 0.1 * (1 + step) * w for w in (p.detach() for p in parameters)]
    return [None if i == 1 and step % 3 == 2 else g for i, g in enumerate(found)]


@pytest.mark.parametrize("defaults", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_rule_takes_the_steps_of_torch_while_the_rate_changes(name, defaults):
    kind, options, fixed = TORCH[name]
    if defaults:  # torch's SGD has no momentum unless asked
        options = {key: 0.9 for key in options if key == "momentum"}
    ours, theirs = start(), [torch.nn.Parameter(w) for w in start()]
    rule = make(name, lr=0.01, **({} if defaults else options))
    optimizer = kind(theirs, lr=0.01, **options, **fixed)
    for step in range(50):
        rule.lr = optimizer.param_groups[0]["lr"] = 0.01 * (1 + math.sin(step))
        for parameter, gradient in zip(theirs, gradients(theirs, step), strict=True):
            parameter.grad = gradient
        optimizer.step()
        rule.step(ours, gradients(ours, step))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(ours[1], start()[1], atol=1e-2)


def test_a_decaying_rate_is_torchs_exponential_lr():
    (parameter,) = theirs = [torch.nn.Parameter(start()[0])]
    optimizer = torch.optim.SGD(theirs, lr=0.3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    ours, rule = [start()[0]], make("decay", lr=0.3, gamma=0.9)
    for step in range(50):
        assert rule.lr == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        (parameter.grad,) = gradients(theirs, step)
        optimizer.step()
        schedule.step()
        rule.step(ours, gradients(ours, step))
    torch.testing.assert_close(ours[0], parameter.detach(), rtol=1e-12, atol=1e-12)


def by_hand(name, rate, slope, w):
    """The line of the lecture's table `name`, number by number: w after each step, or for nesterov
    the point at which it takes the gradient."""
    before, v, a, m1, m2, at = w, 0.0, 0.0, 0.0, 0.0, []
    for t in range(50):
        eta = rate(t)
        g = slope(w - 0.9 * v, t) if name == "nesterov" else slope(w, t)
        if name == "momentum":
            w, before = w + 0.9 * (w - before) - eta * g, w
        elif name == "nesterov":
            w, v = w + v, 0.9 * v - eta * g
        elif name == "adagrad":
            a = sum(g**2 for _ in range(t + 1))
            w = w - eta * g / (math.sqrt(a) + 1e-10)
        elif name == "rmsprop":
            a = 0.99 * a + 0.01 * g**2
            w = w - eta * g / math.sqrt(a + 1e-8)
        elif name == "adam":
            m1 = (0.9 * m1 + (1 - 0.9) * g) / (1 - 0.9 ** (t + 1))
            m2 = (0.999 * m2 + (1 - 0.999) * g**2) / (1 - 0.999 ** (t + 1))
            w = w - eta * m1 / math.sqrt(m2 + 1e-8)
        else:
            w = w - eta * g
        at.append(w - 0.9 * v)
    return at


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_as_printed_is_the_line_of_the_lectures_table(name):
    def rate(t):
        return 0.02 * (1 + math.sin(t))

    def slope(w, t):
        return math.sin(3 * w) + 0.1 * w

    expected = by_hand(name, rate, slope, 1.3)
    rule, w = make(name, lr=0.0, printed=True), torch.tensor(1.3, dtype=torch.float64)
    for t in range(50):
        rule.lr = rate(t)
        rule.step([w], [torch.tensor(slope(w.item(), t), dtype=torch.float64)])
        assert w.item() == pytest.approx(expected[t], rel=1e-12, abs=1e-12)


def moved(name, steps, gradient=1.0, lr=1.0, **options):
    """How far equal gradients move a weight, in units of the rate."""
    rule, w = make(name, lr=lr, **options), torch.zeros((), dtype=torch.float64)
    for _ in range(steps):
        rule.step([w], [torch.tensor(gradient, dtype=torch.float64)])
    return -w.item() / lr


def test_rmsprop_as_printed_hardly_moves_for_a_small_gradient():
    options = {"gradient": 1e-5, "alpha": 0.9, "eps": 1e-8}
    assert moved("rmsprop", 1, printed=True, **options) == pytest.approx(0.10, abs=0.001)
    assert moved("rmsprop", 1, **options) == pytest.approx(3.15, abs=0.005)


def test_ten_equal_gradients_move_ten_rates_by_adam_and_as_printed_it_stops():
    assert moved("adam", 10) == pytest.approx(10, rel=1e-6)
    assert moved("adam", 10, printed=True) == pytest.approx(1.29, abs=0.005)
    assert moved("adam", 1000, printed=True) - moved("adam", 10, printed=True) < 1e-7


def test_adagrad_as_printed_forgets_all_gradients_but_the_newest():
    rule, w = make("adagrad", lr=1.0, printed=True), torch.zeros(1, dtype=torch.float64)
    rule.step([w], [torch.tensor([100.0])])
    before = w.clone()
    rule.step([w], [torch.tensor([0.01])])
    assert (before - w).item() == pytest.approx(1 / math.sqrt(2), rel=1e-6)


def test_momentum_as_printed_differs_once_the_rate_changes_and_not_before():
    ours, printed = torch.ones(1), torch.ones(1)
    rules = make("momentum", lr=0.1), make("momentum", lr=0.1, printed=True)
    for step in range(6):
        for rule, w in zip(rules, (ours, printed), strict=True):
            rule.lr = 0.1 if step < 4 else 0.01
            rule.step([w], [w.clone()])
        assert torch.allclose(ours, printed, atol=1e-6) == (step < 4)


STABLE = [
    ("sgd", False, 2.0),
    ("decay", False, 2.0),
    ("momentum", False, 3.8),
    ("momentum", True, 3.8),
    ("nesterov", False, 1.357),
    ("nesterov", True, 0.0526),
]


@pytest.mark.parametrize(("name", "printed", "bound"), STABLE)
def test_below_the_stable_rate_a_quadratic_converges_and_above_it_does_not(name, printed, bound):
    curvature = 40.0
    rate = make(name, lr=0.0, printed=printed).stable_rate(curvature)
    assert rate * curvature == pytest.approx(bound, abs=6e-4)
    ends = []
    for lr in (0.95 * rate, 1.05 * rate):
        rule, w = make(name, lr=lr, printed=printed), torch.ones((), dtype=torch.float64)
        for _ in range(1500):
            rule.lr = lr
            rule.step([w], [curvature * w])
        ends.append(abs(w.item()))
    assert ends[0] < 0.1 and not ends[1] < 10


@pytest.mark.parametrize("printed", [False, True])
def test_adagrad_converges_at_any_rate(printed):
    rule, w = make("adagrad", lr=5.0, printed=printed), torch.ones((), dtype=torch.float64)
    assert rule.stable_rate(1.0) == math.inf
    for _ in range(2000):
        rule.step([w], [w.clone()])
    assert abs(w.item()) < 0.5


def test_a_rate_outside_the_stable_range_of_a_curvature_warns_with_the_bound():
    message = (
        r"^lr=0\.1 is outside the stable range of nesterov as printed on curvature 1, .* "
        r"use less than 0\.05263\.$"
    )
    with pytest.warns(RuntimeWarning, match=message) as caught:
        make("nesterov", lr=0.1, printed=True, curvature=1.0)
    assert caught[0].filename == __file__
    with pytest.warns(RuntimeWarning, match=r"of sgd on curvature 100, .* less than 0\.02\.$"):
        make("sgd", lr=0.02, curvature=100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("nesterov", lr=0.1, curvature=1.0)
        make("adagrad", lr=9.0, curvature=100.0)


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_a_rule_scaled_by_its_gradients_has_no_stable_rate(name):
    with pytest.raises(ValueError, match="has no stable rate for a curvature"):
        make(name, lr=0.1, curvature=1.0)


def test_a_slice_is_moved_in_place_and_alone():
    whole = torch.nn.Parameter(torch.ones(6))
    rule = make("adam", lr=0.1)
    for _ in range(3):
        rule.step([whole.data[2:4]], [torch.ones(2)])
    assert torch.allclose(whole, torch.tensor([1, 1, 0.7, 0.7, 1, 1]))
    assert not whole.data[2:4].requires_grad


def test_parameters_that_need_gradients_are_moved_outside_the_graph():
    layer = torch.nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    before = layer.bias.item()
    parameters = list(layer.parameters())
    make("momentum", lr=0.1).step(parameters, [p.grad for p in parameters])
    assert layer.bias.item() == pytest.approx(before - 0.1) and layer.bias.is_leaf


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_pickled_rule_has_its_state(name, printed):
    rule, w = make(name, lr=0.1, printed=printed), torch.ones(2)
    for _ in range(2):
        rule.step([w], [w.clone()])
    copy, other = pickle.loads(pickle.dumps((rule, w)))
    for one, at in ((rule, w), (copy, other)):
        one.step([at], [torch.ones(2)])
    assert torch.equal(w, other)


def in_two_groups(parameters):
    groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.5}]
    return torch.optim.SGD(groups, lr=1.0)


def test_a_scheduler_changes_each_group_of_an_optimizer_by_itself():
    """And a function of the update's number all of them."""
    for scheduled, expected in (
        (lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.1), [[1.0, 0.5], [0.1, 0.05]]),
        (lambda update: 0.25 / (1 + update), [[0.25, 0.25], [0.125, 0.125]]),
    ):
        ws = [torch.zeros(1, requires_grad=True) for _ in range(2)]
        moves = update_rules.Moves(update_rules.as_rule(in_two_groups), None, scheduled)
        moves.bind(ws)
        for rates in expected:
            before = [w.item() for w in ws]
            moves.step(ws, [torch.ones(1), torch.ones(1)])
            assert [b - w.item() for b, w in zip(before, ws, strict=True)] == pytest.approx(rates)


def test_complex_gradients_have_the_norm_that_torch_clips_by():
    gradients = [torch.tensor([3 + 4j, 1j]), torch.tensor([2.0])]
    w = [torch.zeros(2, dtype=torch.complex64), torch.zeros(1)]
    for p, g in zip(w, gradients, strict=True):
        p.requires_grad_().grad = g.clone()
    norm = torch.nn.utils.clip_grad_norm_(w, 1.0)
    moves = update_rules.Moves(update_rules.SGD(1.0), clip=1.0)
    assert moves.norm(gradients) == pytest.approx(norm.item())
    for g, p in zip(moves.clipped(gradients), w, strict=True):
        torch.testing.assert_close(g, p.grad)


def test_a_name_or_an_object_will_do():
    rule = make("adam", lr=0.1)
    assert update_rules.as_rule(rule) is rule
    assert update_rules.as_rule("sgd").lr == 0.1 and update_rules.as_rule("adam").lr == 0.001
    named = update_rules.as_rule("adagrad", 0.5)
    assert isinstance(named, update_rules.AdaGrad) and named.lr == 0.5


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("adamw", {}, "^rule='adamw' is not known: use sgd, decay, .*, rmsprop or adam\\.$"),
        ("adam", {"momentum": 0.9}, "^rule 'adam' has no option 'momentum': use betas and eps"),
        ("sgd", {"momentum": 0.9}, "^rule 'sgd' has no option 'momentum': it has lr alone"),
        ("sgd", {"lr": -0.1}, "^lr=-0.1 is no rate: use 0 or more"),
        ("adam", {"lr": math.nan}, "^lr=nan is no rate"),
    ],
)
def test_an_unknown_rule_or_option_is_refused_in_one_sentence(name, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, **{"lr": 0.1, **options})


def test_tensors_that_do_not_fit_are_refused_before_any_is_moved():
    rule, w = make("momentum", lr=0.1), [torch.ones(2), torch.ones(3)]
    rule.step(w, [None, torch.ones(3)])
    with pytest.raises(ValueError, match="^1 parameters and 1 gradients do not fit a rule of 2"):
        rule.step(w[:1], [torch.ones(2)])
    with pytest.raises(ValueError, match=r"^parameter 0 has shape \(2,\) and its gradient \(1,\)"):
        rule.step(w, [torch.ones(1), torch.ones(3)])
    with pytest.raises(ValueError, match="^parameter 1 has shape"):
        rule.step(w, [torch.ones(2), torch.ones(1)])
    assert torch.equal(w[0], torch.ones(2))


def test_descend_records_where_the_rule_was_in_each_step():
    points = update_rules.descend(
        make("momentum", lr=0.1, momentum=0.5), lambda x, y: x**2 + 3 * y**2 / 2, (1.0, -2.0), 2
    )
    # gradients (2, -6), then (1.6, -4.2): v = (2.6, -7.2)
    expected = [[1.0, -2.0], [0.8, -1.4], [0.54, -0.68]]
    torch.testing.assert_close(points, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "lr", "momentum", "expected"),
    [("sgd", 2 / 101, 0.0, 691), ("momentum", 4 / 121, (9 / 11) ** 2, 93)],
)
def test_momentum_needs_93_steps_where_sgd_needs_691(name, lr, momentum, expected):
    """Curvatures 1 and 100, best rates, to 1e-6 of the distance; log(1e-6) / log(9/11) = 69 leaves
    out that both eigenvalues of momentum's step are equal there."""
    rule = make(name, lr, **({"momentum": momentum} if momentum else {}))
    points = update_rules.descend(rule, lambda x, y: x**2 / 2 + 50 * y**2, (1.0, 1.0), 800)
    far = points.norm(dim=1) > 1e-6 * points[0].norm()
    assert int(far.nonzero().max()) + 1 == expected


def test_a_rule_with_the_former_name_of_its_state_is_taken_and_warned_of():
    with pytest.warns(DeprecationWarning, match="a rule's kept is called state_tensors now"):

        class Momentum(update_rules.Rule):
            kept = 1

            def move(self, w, g, t, v):
                v.mul_(0.9).add_(g)
                w.sub_(v, alpha=self.lr)

    w = torch.ones(2)
    rule = Momentum(0.5)
    rule.step([w], [torch.ones(2)])
    rule.step([w], [torch.ones(2)])
    assert w.tolist() == pytest.approx([1 - 0.5 - 0.5 * 1.9] * 2)


def bowl(x, y):
    return (x**2 + 4 * y**2) / 2


def test_descend_from_several_starts_is_that_from_each():
    starts = [(1.0, 2.0), (-1.0, 0.5), (3.0, 0.0)]
    rules = [update_rules.make("adam", 0.1) for _ in range(4)]
    together = update_rules.descend(rules[0], bowl, torch.tensor(starts).T, 20)  # (21, 2, 3)
    for i, (rule, start) in enumerate(zip(rules[1:], starts, strict=True)):
        alone = update_rules.descend(rule, bowl, start, 20)
        torch.testing.assert_close(together[:, :, i], alone)


def test_steps_until_is_the_step_from_which_a_path_stays_near():
    x = torch.tensor([4.0, 0.5, 2.0, 0.5, 0.1])
    assert update_rules.steps_until(torch.stack([x, 0 * x], dim=1), 1.0) == 3
    assert update_rules.steps_until(torch.stack([x, 0 * x], dim=1), 9.0) == 0
    assert update_rules.steps_until(torch.stack([x, x * math.nan], dim=1), 1.0) == torch.inf


def test_a_race_takes_each_rules_best_rate_in_the_median_over_the_starts():
    starts, rates = [(1.0, 1.0), (0.0, 0.1), (3.0, 0.0)], [0.1, 0.4, 0.6]
    table = update_rules.race({"SGD": update_rules.SGD(1.0)}, bowl, starts, rates, steps=100)

    def steps(lr, start):
        points = update_rules.descend(update_rules.SGD(lr), bowl, start, 100)
        return update_rules.steps_until(points, 0.01).item()

    took = {lr: sorted(steps(lr, start) for start in starts) for lr in rates}
    best = min(rates, key=lambda lr: took[lr][1])
    assert best == 0.4 and took[0.6][-1] == torch.inf and took[0.4][0] < took[0.4][-1]
    row = table.loc["SGD"]
    assert (row.rate, row.steps, row.range) == (
        best,
        took[best][1],
        f"{took[best][0]:g} to {took[best][-1]:g}",
    )
    with pytest.raises(ValueError, match="rates"):
        update_rules.race({"SGD": update_rules.SGD(1.0)}, bowl, starts, [])
