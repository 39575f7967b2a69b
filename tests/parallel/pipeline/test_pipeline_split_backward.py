"""I and W apart: each computes its own gradients, all of them and none of the other's."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from dlviz.parallel.pipeline.split_backward import SplitForward

WIDTH, ROWS = 6, 5
log = []


class Logged(torch.autograd.Function):
    """A linear layer that computes what is asked for in one backward and says what that was."""

    @staticmethod
    def forward(ctx, name, x, weight, bias, scale):
        ctx.save_for_backward(x, weight)
        ctx.name, ctx.scale = name, scale
        return scale * (x @ weight.t()) + bias

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            log.append(("input", ctx.name))
            of_x = ctx.scale * gradient @ weight
        if ctx.needs_input_grad[2]:
            log.append(("weight", ctx.name))
            of_weight = ctx.scale * gradient.t() @ x
        if ctx.needs_input_grad[3]:
            log.append(("bias", ctx.name))
            of_bias = gradient.sum(0)
        return None, of_x, of_weight, of_bias, None


class Layer(nn.Linear):
    def __init__(self, name, **options):
        super().__init__(WIDTH, WIDTH, **options)
        self.name = name

    def forward(self, x):
        return Logged.apply(self.name, x, self.weight, self.bias, 2.0)


class Odd(nn.Module):
    """Residuals, a layer used twice, tied weights, in-place ReLUs, weights that nothing uses and
    such that are frozen, a parametrization, an operation with several outputs."""

    def __init__(self, first=None):
        super().__init__()
        self.first = first or Layer("first")
        self.a, self.b, self.plain = Layer("a"), Layer("b"), nn.Linear(WIDTH, WIDTH)
        self.tied = nn.Linear(WIDTH, WIDTH, bias=False)
        self.tied.weight = self.a.weight
        self.relu = nn.LeakyReLU(0.2, inplace=True)
        self.unused = nn.Parameter(torch.randn(3))
        self.own = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.frozen = Layer("frozen").requires_grad_(False)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        h = self.relu(self.first(x))
        h = h + self.a(self.plain(h))
        h = self.relu(self.plain(h))
        h = self.tied(h) + h @ self.own
        h = self.frozen(self.a(h)) + self.b(h)
        left, right = h.chunk(2, -1)
        return self.normed(torch.cat([right.sin(), left * self.own[0, :3]], -1))


class Products(TorchDispatchMode):
    """Counts the matrix products that run."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.overloadpacket.__name__ in ("mm", "addmm", "bmm")
        return function(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def doubles():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    log.clear()
    yield
    torch.set_default_dtype(torch.float32)


def split_backward(model, x, wanted):
    """Run F, I and W; the input's gradient, what I and what W logged, and the products in each."""
    stage_pass = SplitForward(model, x.clone(), wanted)
    gradient = torch.randn(stage_pass.output.shape, generator=torch.Generator().manual_seed(2))
    with Products() as in_input:
        of_x = stage_pass.backward_input(gradient)
    logged_input = list(log)
    assert all(p.grad is None for p in model.parameters())
    log.clear()
    with Products() as in_weight:
        stage_pass.backward_weight()
    return of_x, logged_input, list(log), (in_input.count, in_weight.count)


def whole_backward(model, x, wanted):
    x = x.clone().requires_grad_(wanted)
    output = model(x.clone())
    if output.requires_grad:
        generator = torch.Generator().manual_seed(2)
        output.backward(torch.randn(output.shape, generator=generator))
    log.clear()
    return x.grad


def check(model, x, wanted=True):
    reference = copy.deepcopy(model)
    expected = whole_backward(reference, x, wanted)
    of_x, *rest = split_backward(model, x, wanted)
    if not wanted:
        assert of_x is None
    elif expected is None:
        assert not of_x.any()
    else:
        torch.testing.assert_close(of_x, expected, rtol=1e-12, atol=1e-12)
    for (name, p), q in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-12, atol=1e-12, msg=name)
    return rest


def kinds(logged):
    return {kind for kind, _ in logged}


def test_i_logs_no_weight_and_w_no_input_and_each_gradient_is_computed_once():
    in_i, in_w, _ = check(Odd(), torch.randn(ROWS, WIDTH))
    assert sorted(in_i) == sorted(("input", name) for name in ("first", "a", "a", "b", "frozen"))
    assert sorted(in_w) == sorted(
        (kind, name) for kind in ("weight", "bias") for name in ("first", "a", "a", "b")
    )


def test_torchs_own_layers_run_no_product_of_the_other_kind_either():
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    model = nn.Sequential(*layers, nn.ReLU(inplace=True), layers[0], nn.Linear(WIDTH, WIDTH))
    model[5].weight = layers[1].weight
    *_, products = check(model, torch.randn(ROWS, WIDTH))
    assert products == (5, 5)


def test_the_first_stages_i_goes_as_far_as_its_first_layer_and_no_further():
    in_i, in_w, _ = check(Odd(), torch.randn(ROWS, WIDTH), wanted=False)
    assert sorted(in_i) == sorted(("input", name) for name in ("a", "a", "b", "frozen"))
    assert kinds(in_w) == {"weight", "bias"}


def test_so_it_does_where_the_input_is_the_numbers_of_words():
    words = torch.randint(9, (ROWS,))
    in_i, in_w, _ = check(Odd(nn.Embedding(9, WIDTH)), words, wanted=False)
    assert kinds(in_i) == {"input"} and len(in_i) == 4
    assert kinds(in_w) == {"weight", "bias"}


class Uses(nn.Module):
    """A weight used several times in ways that no module sees."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale = (nn.Parameter(torch.randn(WIDTH, WIDTH)) for _ in range(2))

    def forward(self, x):
        local = self.weight
        h = (x @ local).sin() @ local
        local = local.t() * local
        return (h @ local + h) * self.scale.sum() @ local


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2)

    def forward(self, x):
        return self.lstm(x[None])[0][0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x[None])[0]


class Constant(nn.Module):
    """Takes no notice of its input."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        return self.weight.sin() * 2


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


MODELS = {
    "uses": Uses,
    "recurrent": Recurrent,
    "attention": Attention,
    "constant": Constant,
    "checkpointed": Checkpointed,
    "identity": nn.Identity,
    "in place": lambda: nn.ReLU(inplace=True),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "frozen": lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False),
    "lazy": lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.Dropout(0.0), nn.LazyLinear(3)),
    "unflattened": lambda: nn.Sequential(
        nn.ReLU(inplace=True), nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 4, 2)
    ),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("wanted", [True, False])
def test_i_and_w_together_are_b_for_any_module(model, wanted):
    model = MODELS[model]()
    if any(nn.parameter.is_lazy(p) for p in model.parameters()):
        model(torch.randn(ROWS, WIDTH))
    check(model, torch.randn(ROWS, WIDTH), wanted)


def test_a_layer_that_takes_its_shape_from_its_first_input_can_be_split():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    stage_pass = SplitForward(model, torch.randn(ROWS, WIDTH), wanted=True)
    stage_pass.backward_input(torch.ones_like(stage_pass.output))
    stage_pass.backward_weight()
    assert model[0].weight.shape == (3, WIDTH)
    assert all(p.grad is not None for p in model.parameters())


def test_a_split_leaves_the_module_as_it_was():
    model = Odd()
    parameters = dict(model.named_parameters())
    SplitForward(model, torch.randn(ROWS, WIDTH), wanted=True)
    assert all(p is parameters[name] for name, p in model.named_parameters())
    assert {type(module._parameters) for module in model.modules()} == {dict}

    class Fails(nn.Linear):
        def forward(self, x):
            raise ArithmeticError

    model = Fails(WIDTH, WIDTH)
    with pytest.raises(ArithmeticError):
        SplitForward(model, torch.randn(ROWS, WIDTH), wanted=True)
    assert type(model._parameters) is dict


def test_b_of_a_visit_that_was_to_be_split_is_the_whole_backward():
    model = Odd()
    reference = copy.deepcopy(model)
    x = torch.randn(ROWS, WIDTH)
    expected = whole_backward(reference, x, wanted=True)
    stage_pass = SplitForward(model, x, wanted=True)
    generator = torch.Generator().manual_seed(2)
    of_x = stage_pass.backward(torch.randn(stage_pass.output.shape, generator=generator))
    torch.testing.assert_close(of_x, expected)
    for p, q in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
