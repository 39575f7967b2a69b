"""models.layer_storage: the lecture's formula counted, and what autograd saves."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dlviz.models import LSTM, MLP, ConvNet, layer_storage, saved_tensors

FORMULA = ["weights", "outputs", "weight_gradients", "output_gradients"]


def test_an_mlp_stores_476240_bytes_and_autograd_saves_81920():
    table = layer_storage(MLP((64, 128, 128, 10)), torch.rand(64, 1, 8, 8))
    assert table.kind.to_list() == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    weights = [4 * n for n in (64 * 128 + 128, 0, 128 * 128 + 128, 0, 128 * 10 + 10)]
    outputs = [4 * 64 * n for n in (128, 128, 128, 128, 10)]
    for column, expected in zip(FORMULA, [weights, outputs, weights, outputs], strict=True):
        assert table[column].to_list() == expected
    assert table[FORMULA].to_numpy().sum() == 476_240
    # The input, and the outputs of both ReLUs: each linear layer's input is one of them.
    assert table.kept.to_list() == [4 * 64 * n for n in (64, 128, 0, 128, 0)]


def test_double_precision_and_twice_the_batch_store_as_much_more():
    double = layer_storage(MLP(dtype=torch.float64), torch.rand(64, 64, dtype=torch.float64))
    wide = layer_storage(MLP(), torch.rand(128, 64))
    single = layer_storage(MLP(), torch.rand(64, 64))
    assert (double[FORMULA] == 2 * single[FORMULA]).all(axis=None)
    assert wide.weights.equals(single.weights) and wide.outputs.equals(2 * single.outputs)


def test_a_view_between_layers_stores_nothing():
    table = layer_storage(ConvNet(), torch.rand(2, 1, 8, 8))
    assert table.kind.to_list() == [
        *["Conv2d", "ReLU", "MaxPool2d"] * 2,
        "Linear",
    ], "no Flatten"


class Odd(nn.Module):
    """What makes counting hard: a layer used twice, in place, with a tuple or nothing to return,
    a tied weight, an unused layer, a function between layers, batch statistics and chance."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.norm = nn.BatchNorm1d(8)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.silent = Silent()
        self.head = nn.Linear(8, 7)
        self.head.weight = self.table.weight
        self.unused = nn.Linear(3, 3)

    def forward(self, tokens, scale=1.0):
        x, _ = self.lstm(self.table(tokens))  # (4, 5, 8)
        self.silent(x)
        x = self.relu(self.norm(x.flatten(0, 1)))  # (20, 8)
        return self.head(torch.sigmoid(self.relu(self.drop(x)) * scale))


class Silent(nn.Module):
    def forward(self, x):
        return None


def odd() -> tuple[Odd, torch.Tensor]:
    torch.manual_seed(2)
    return Odd(), torch.randint(7, (4, 5))


def test_shared_tuple_in_place_unused_and_silent_layers_are_counted_as_they_are():
    table = layer_storage(*odd())
    assert "silent" not in table.index, "what stores nothing has no row"
    embedding, states = 4 * 7 * 8, 4 * (20 * 8 + 2 * 4 * 8)
    assert table.weights.to_dict() == {
        "Odd": 0,
        "table": embedding,  # where the head's lies too
        "lstm": 4 * (2 * 32 * 8 + 2 * 32),
        "norm": 4 * 16,
        "relu": 0,
        "drop": 0,
        "head": 4 * 7,
        "unused": 4 * 12,
    }
    assert table.outputs.drop("Odd").to_list() == [640, states, 640, 0, 640, 4 * 20 * 7, 0]
    assert table.weight_gradients["unused"] == 0
    assert table.weight_gradients["table"] == embedding
    assert table.output_gradients["relu"] == 2 * 640, "used twice"
    assert table.output_gradients["lstm"] == 640, "its last states go nowhere"
    assert table.kept["Odd"] > 0, "of the sigmoid, which no layer calls"


def saved_bytes(model: nn.Module, inputs: torch.Tensor) -> int:
    """The bytes that autograd saves of the forward, counted apart from the package."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    found: dict[int, torch.Tensor] = {}

    def see(tensor):
        place = tensor.untyped_storage().data_ptr()
        if place not in own and (place not in found or tensor.nbytes > found[place].nbytes):
            found[place] = tensor
        return tensor

    with saved_tensors_hooks(see, lambda tensor: tensor):
        output = model(inputs)
    assert output.requires_grad
    return sum(tensor.nbytes for tensor in found.values())


@pytest.mark.parametrize("build", [odd, lambda: (MLP(), torch.rand(5, 64))])
def test_layers_together_save_what_autograd_saves(build):
    model, inputs = build()
    assert layer_storage(model, inputs).kept.sum() == saved_bytes(model, inputs)


@pytest.mark.parametrize("build", [odd, lambda: (MLP(), torch.rand(5, 64))])
def test_saved_tensors_add_up_to_the_bytes_of_the_layers(build):
    model, inputs = build()
    torch.manual_seed(0)
    table, tensors = layer_storage(model, inputs), saved_tensors(model, inputs)
    sums = tensors.nbytes.groupby(tensors.layer).sum()
    assert sums.to_dict() == table.kept[table.kept > 0].to_dict()


def test_each_saved_tensor_is_listed_with_the_operation_that_needs_it():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * ctx.saved_tensors[0] * gradient

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(3, 4)

        def forward(self, x):
            y = self.up(x)  # (2, 4)
            self.up(x).sigmoid()  # its graph is freed immediately
            return Twice.apply(y).softmax(-1) * y

    table = saved_tensors(Net(), torch.rand(2, 3))
    assert table.values.tolist() == [
        ["up", "Addmm mat1", (2, 3), "float32", 24],
        ["Net", "Mul other, Twice", (2, 4), "float32", 32],
        ["Net", "Mul self, Softmax result", (2, 4), "float32", 32],
    ]


def lstm_saves(steps, dtype):
    table = layer_storage(LSTM(50, width=64, window=60, dtype=dtype), torch.ones(8, steps).long())
    return table.kept[table.kind == "_Recurrent"].item()


def test_an_lstm_saves_eight_values_of_each_unit_for_each_time_step():
    """In float64 torch goes step by step: four gates (views of one storage), the cell before and
    the tanh of the cell after, the output before, the input."""
    for steps in (1, 20, 40):
        assert lstm_saves(steps, torch.float64) == 8 * (8 * 64) * steps * 8


def test_a_fused_lstm_saves_bytes_in_proportion_to_its_time_steps():
    twenty, forty, sixty = (lstm_saves(steps, torch.float32) for steps in (20, 40, 60))
    assert sixty - forty == pytest.approx(forty - twenty, rel=0.05)
    assert 1.8 < forty / twenty < 2.1


def test_counting_leaves_the_model_as_it_was():
    model, tokens = odd()
    model.unused.weight.grad = torch.ones(3, 3)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    layer_storage(model, (tokens, 2.0))
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert [p.grad is None for p in model.parameters()].count(False) == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_hooks_are_gone_after_a_forward_that_raised():
    model = MLP()
    with pytest.raises(RuntimeError):
        layer_storage(model, torch.rand(2, 3))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_frozen_layers_have_no_gradients():
    model = MLP((8, 6, 4))
    model[1].requires_grad_(False)
    table = layer_storage(model, torch.rand(3, 8))
    assert table.weight_gradients.to_list() == [0, 0, 4 * 28]
    assert table.output_gradients.to_list() == [0, 0, 4 * 12]
    assert table.outputs.to_list() == [4 * 18, 4 * 18, 4 * 12]
    frozen = layer_storage(model.requires_grad_(False), torch.rand(3, 8))
    assert frozen[["weight_gradients", "output_gradients", "kept"]].to_numpy().sum() == 0


def test_a_model_of_one_layer_has_its_class_as_name():
    table = layer_storage(nn.Linear(3, 2), torch.rand(4, 3))
    assert table.index.to_list() == ["Linear"] and table.outputs.to_list() == [32]


def test_the_former_name_of_saved_tensors_is_accepted_with_a_warning():
    with pytest.warns(DeprecationWarning, match="kept_tensors is called saved_tensors now"):
        from dlviz.models import kept_tensors

    assert kept_tensors is saved_tensors
