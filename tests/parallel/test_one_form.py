"""All strategies train by one form: any of them with any batches, loss and rule gives what one
process of plain torch does, or refuses in a sentence that stands here."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import dlviz
from dlviz.parallel import STRATEGIES, pipeline, update_rules

ROWS, WIDTH, CLASSES, STEPS = 8, 4, 3, 3
# name: ranks, and the options by which it computes what one process does
ALIKE = {
    "ddp": (3, {}), "naive": (3, {}), "central": (3, {}),
    "sufficient_factors": (3, {"factors": "all"}), "sync_server": (4, {"servers": 1}),
    "async_server": (2, {}), "stale_synchronous": (2, {"bound": 2}), "hogwild": (1, {}),
    "easgd": (2, {"alpha": 0.0}), "local_sgd": (1, {}), "gossip": (1, {}), "ensemble": (1, {}),
    "zero": (3, {"stage": 3, "microbatches": 2}), "offload": (3, {"how": "stream"}),
    "late_all_reduce": (3, {}), "model": (3, {}), "tensor": (2, {}),
    "spatial": (3, {}), "channel_filter": (4, {"filters": 2, "channels": 2}), "cnn_hybrid": (3, {}),
    "placement": (2, {"placement": "round_robin"}),
    "3d": (4, {"dp": 2, "pp": 2, "tp": 1, "microbatches": 2}), "pipeline": (2, {"microbatches": 2}),
}  # fmt: skip
ON_ONE_TENSOR = {
    "model", "placement", "tensor", "spatial", "channel_filter", "cnn_hybrid", "3d", "pipeline",
}  # fmt: skip
TRAIN = {**STRATEGIES, "pipeline": pipeline.train}


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    """Some labels are ignored: all of a rank's rows in the first batch, say."""
    drawn = torch.Generator().manual_seed(1)
    inputs = torch.randn(STEPS * ROWS, WIDTH, generator=drawn, dtype=torch.float64)
    labels = torch.randint(CLASSES, (STEPS * ROWS,), generator=drawn)
    labels[:3] = labels[[11, 12, 17]] = -100
    return inputs, labels


def pairs() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(*(part.split(ROWS) for part in examples()), strict=True))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(*examples(), strict=True))


FORMS = {
    "a list": pairs,
    "a DataLoader": lambda: DataLoader(TensorDataset(*examples()), batch_size=ROWS),
    "a DataLoader of a stream": lambda: DataLoader(Stream(), batch_size=ROWS),
    "a generator": lambda: (pair for pair in pairs()),
    "numpy": lambda: [tuple(part.numpy() for part in pair) for pair in pairs()],
    "a longer tuple": lambda: [(x, x.flip(0), y) for x, y in pairs()],
    "dicts": lambda: ({"other": x.flip(0), "x": x, "labels": y} for x, y in pairs()),
}
SEVERAL = {"a longer tuple", "dicts"}


def squares(outputs, labels):
    """A user's own loss: a mean over what `known` counts."""
    kept = labels >= 0
    return (outputs[kept] - labels[kept, None]).square().sum(1).mean()


def known(inputs, labels):
    return (labels >= 0).sum()


CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
LOSSES = {
    "ignored labels": (nn.functional.cross_entropy, {}),
    "class weights": (nn.CrossEntropyLoss(CLASS_WEIGHTS), {}),
    "one's own": (squares, {"weight": known}),
}
RULES = {
    "ours": lambda: update_rules.Momentum(0.1),
    "torch's": lambda: lambda parameters: torch.optim.AdamW(parameters, lr=0.02),
}
OF_TORCH = {
    "ours": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "torch's": partial(torch.optim.AdamW, lr=0.02),
}
REFUSED = {
    **{(name, form, None): "passes one tensor on" for name in ON_ONE_TENSOR for form in SEVERAL},
    ("hogwild", None, "torch's"): "and a torch optimizer the parameters of a rank: name a rule",
}


class Net(nn.Sequential):
    """Of one input, or of two."""

    def forward(self, x, other=None):
        return super().forward(x if other is None else x + 0.5 * other)


def model() -> Net:
    torch.manual_seed(0)
    layers = nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, CLASSES)
    return Net(*layers).to(torch.float64)


PROBE = torch.linspace(-1, 1, WIDTH, dtype=torch.float64)


def outputs(net):
    """And then spoil the model, which is a copy."""
    assert not net.training and not torch.is_grad_enabled()
    found = net(PROBE).tolist()
    for p in net.parameters():
        p.zero_()
    return found


def alone(form, loss, rule, late=False, clip=None, rates=None):
    """Losses, state and evaluations of one process; `late`, by gradients of the step before."""
    net, found, gradients = model(), [], None
    optimizer, evaluations = OF_TORCH[rule](net.parameters()), {}

    def update():
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates(update.count)
        update.count += 1
        optimizer.step()

    update.count = 0
    for step, (x, y) in enumerate(pairs()):
        net.zero_grad()
        value = LOSSES[loss][0](net(x, x.flip(0)) if form in SEVERAL else net(x), y)
        value.backward()
        now = [p.grad.clone() for p in net.parameters()]
        for p, g in zip(net.parameters(), gradients or now, strict=True):
            p.grad = g
        if not late or gradients:
            update()
        gradients = now if late else None
        found.append(value.item())
        with torch.no_grad():
            evaluations[step + 1] = net(PROBE).tolist()
    if gradients:
        for p, g in zip(net.parameters(), gradients, strict=True):
            p.grad = g
        update()
    return found, net.state_dict(), evaluations


def given_to(name):
    net: nn.Module = model()
    if name in ON_ONE_TENSOR:
        net = nn.Sequential(*net.children())
    return pipeline.split(net, 2) if name in ("3d", "pipeline") else net


def train(comm, name, form, loss, rule, **more):
    function, weight = LOSSES[loss]
    options = {"loss": function, **weight, **ALIKE[name][1], **more}
    return TRAIN[name](comm, given_to(name), FORMS[form](), RULES[rule](), **options)


def differs(name, result, expected):
    losses, state = expected[:2]
    if result["losses"] != pytest.approx(losses, rel=1e-12, abs=1e-12):
        return "losses"
    if name == "easgd":
        return None  # alpha = 0: its centre, which is `state`, does not move
    for key, value in result["state"].items():
        if not torch.allclose(value, state[key], rtol=1e-10, atol=1e-12):
            return key
    return None


def all_of_it(comm, name, expected, chosen):
    """The `chosen` forms, losses and rules on these ranks: what differs from one process."""
    wrong = []
    for form, loss, rule in chosen:
        says = REFUSED.get((name, form, None)) or REFUSED.get((name, None, rule))
        if says is not None:
            with pytest.raises(ValueError, match=says):
                train(comm, name, form, loss, rule)
            continue
        result = train(comm, name, form, loss, rule)
        which = differs(name, result, expected[form in SEVERAL, loss, rule])
        if which or result.steps != STEPS or (comm.rank == 0) > bool(result.state):
            wrong.append((form, loss, rule, which))
    return wrong


PAIRS = [*itertools.product(LOSSES, RULES)]
EACH = [(form, *pair) for form, pair in zip(FORMS, itertools.cycle(PAIRS), strict=False)]
ALL = [(form, *pair) for form in FORMS for pair in PAIRS]


@pytest.mark.parametrize(
    "chosen", [EACH, pytest.param(ALL, marks=pytest.mark.sweep)], ids=["each", "all"]
)
@pytest.mark.parametrize("name", ALIKE)
def test_forms_of_batches_losses_and_rules_equal_one_process(name, chosen):
    assert ALIKE.keys() == TRAIN.keys()
    expected = {
        (several, loss, rule): alone("dicts" if several else "a list", loss, rule,
                                     late=name == "late_all_reduce")
        for several in (False, True) for loss in LOSSES for rule in RULES
    }  # fmt: skip
    for wrong in dlviz.launch(all_of_it, ALIKE[name][0], args=(name, expected, chosen)).results:
        assert wrong == []


def rates(update):
    return 0.2 / (1 + update)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 / (1 + update))


def note(seen, step, loss, net):
    assert isinstance(net, nn.Module)
    seen.append((step, loss))


def with_options(comm, name):
    """Clipped, by two forms of the same rates, with evaluations and callbacks."""
    if name == "sync_server":
        ALIKE[name][1]["servers"] = 2
    found = []
    rules = {"ours": rates, "torch's": scheduler}
    if ("hogwild", None, "torch's") in REFUSED and name in ("hogwild", "sync_server"):
        rules = {"ours": rates}
    for rule, lr_schedule in rules.items():
        seen: list[tuple[int, float]] = []
        callback = partial(note, seen)
        how = {"clip": 0.05, "lr_schedule": lr_schedule, "callback": callback}
        how |= {"evaluate": outputs, "evaluate_every": 2}
        found.append((train(comm, name, "a list", "class weights", rule, **how), seen))
    return found


@pytest.mark.parametrize("name", ALIKE)
def test_every_strategy_clips_changes_its_rate_evaluates_and_calls_back(name):
    late = name == "late_all_reduce"
    by_rule = [
        alone("a list", "class weights", "ours", late, 0.05, rates),
        alone("a list", "class weights", "torch's", late, 0.05, lambda n: 0.02 / (1 + n)),
    ]
    results = dlviz.launch(with_options, ALIKE[name][0], args=(name,)).results
    for rank, found in enumerate(results):
        for (result, seen), expected in zip(found, by_rule, strict=False):
            assert differs(name, result, expected) is None, (name, rank)
            assert result.evaluations.keys() == {2}
            if name not in ("easgd", "late_all_reduce"):
                assert result.evaluations[2] == pytest.approx(expected[2][2], rel=1e-9)
            assert [step for step, *_ in seen] in ([0, 1, 2], [])  # none on a server
    assert any(seen for found in results for _, seen in found)


def of_others(parameters):
    return torch.optim.SGD(model().parameters(), lr=0.1)


def on_plateau(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


def one_cycle(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=9)


def below_zero(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: -1)


NO_TRAINING = [
    ("adm", {}, "rule='adm' is not known: use sgd"),
    (3, {}, "rule=3 is none: give one of sgd, decay"),
    (update_rules.SGD, {}, "rule is the class SGD: give a rule, SGD(0.1) say"),
    (torch.optim.SGD(model().parameters(), 0.1), {}, "rule is a SGD of the parameters of one pro"),
    (lambda parameters: None, {}, "rule= gave a NoneType where it needs a torch optimizer"),
    (of_others, {}, "rule= gave an optimizer of other parameters than it was called with"),
    (torch.optim.LBFGS, {}, "LBFGS computes gradients several times in one step, by a closure"),
    (update_rules.SGD(0.1), {"lr": 0.2}, "lr=0.2 has no effect beside a rule that has its own"),
    (torch.optim.SGD, {"lr": 0.2}, "lr=0.2 has no effect beside a rule that has its own"),
    ("sgd", {"lr": 0.2, "lr_schedule": rates}, "lr=0.2 has no effect beside lr_schedule="),
    ("sgd", {"lr_schedule": 0.1}, "lr_schedule=0.1 is no function: it needs a function of the upd"),
    ("sgd", {"lr_schedule": lambda x: x.rate}, "lr_schedule= failed on update 0 ('int' object"),
    ("sgd", {"lr_schedule": lambda x: "fast"}, "lr_schedule= gave a str: it needs a function"),
    ("sgd", {"lr_schedule": on_plateau}, "lr_schedule= gave a ReduceLROnPlateau"),
    ("sgd", {"lr_schedule": one_cycle}, "OneCycleLR changes momentum beside the rate"),
    ("sgd", {"lr": "0.1"}, "lr='0.1' is no rate: use a number"),
    ("sgd", {"clip": 0.0}, "clip=0.0 leaves no gradient"),
    ("sgd", {"clip": "1"}, "clip='1' leaves no gradient"),
    ("sgd", {"callback": "x"}, "callback='x' is no function"),
    ("sgd", {"sharded": "no"}, "sharded='no': use True or False"),
    ("sgd", {"evaluate": 0.5}, "evaluate=0.5 is no function"),
    ("sgd", {"evaluate_every": 0}, "evaluate_every=0 has to be a whole number, 1 or more"),
    ("sgd", {"lr_schedule": lambda update: -1}, "lr_schedule=-1 on update 0 is no rate"),
    ("sgd", {"lr_schedule": lambda update: math.nan}, "lr_schedule=nan on update 0 is no rate"),
    ("sgd", {"lr_schedule": below_zero}, "lr_schedule=-0.1 on update 0 is no rate: return 0 or"),
    (torch.optim.SGD, {"lr_schedule": below_zero}, "lr_schedule=-0.001 on update 0 is no rate"),
    ("sgd", {"loss": "mse"}, "loss='mse' is no function of (outputs, labels)"),
    ("sgd", {"loss": nn.MSELoss}, "loss=<class 'torch.nn.modules.loss.MSELoss'> is no function"),
    ("sgd", {"weight": "rows"}, "weight='rows' is no function of (inputs, labels)"),
    ("sgd", {"weight": None}, "weight=None is no function of (inputs, labels)"),
]


def unread():
    raise AssertionError("a batch was read")
    yield


def refusals(comm, name):
    says = []
    for rule, how, _ in NO_TRAINING:
        try:
            TRAIN[name](comm, given_to(name), unread(), rule, **ALIKE[name][1] | how)
        except ValueError as error:
            says.append(str(error))
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'clips': it has clip"):
        TRAIN[name](comm, given_to(name), unread(), clips=1.0, **ALIKE[name][1])
    return says


@pytest.mark.parametrize("name", ALIKE)
def test_what_cannot_train_is_refused_on_every_rank_before_a_batch_is_read(name):
    for found in dlviz.launch(refusals, ALIKE[name][0], args=(name,), timeout=60).results:
        for says, (rule, how, expected) in zip(found, NO_TRAINING, strict=True):
            assert says.startswith(expected), (rule, how)


def below_zero_later(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 1 - update)


@pytest.mark.parametrize("rule", ["sgd", torch.optim.SGD])
def test_a_scheduler_s_rate_is_refused_where_it_becomes_negative(rule):
    moves, w = update_rules.Moves(update_rules.as_rule(rule), None, below_zero_later), PROBE.clone()
    moves.bind([w.requires_grad_()])
    moves.step([w], [torch.ones(WIDTH, dtype=torch.float64)])
    moves.step([w], [None])
    with pytest.raises(ValueError, match="^lr_schedule=-0.* on update 2 is no rate"):
        moves.step([w], [None])
