"""models.LSTM: it learns from tokens and not from padding, and shards weigh by their tokens."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz.datasets import batches, entropy_per_token, sentences, shard, trim, vocabulary
from dlviz.models import LSTM, target_tokens, token_loss
from dlviz.parallel import STRATEGIES


def model(**options) -> nn.Module:
    return LSTM(len(vocabulary()), 8, dtype=torch.float64, **options)


def gradients(net: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(token_loss(net(inputs), targets), list(net.parameters())))


def test_the_loss_is_the_mean_of_each_sentences_tokens_alone():
    inputs, targets = (part[:6] for part in sentences("train"))
    net = model()
    loss = token_loss(net(inputs), targets)
    nats, tokens = 0.0, 0
    for row, aims in zip(inputs, targets, strict=True):
        k = int((aims >= 0).sum())
        nats += functional.cross_entropy(net(row[None, :k])[0], aims[:k], reduction="sum").item()
        tokens += k
    assert loss.item() == pytest.approx(nats / tokens, rel=1e-12)


def test_columns_of_padding_change_neither_loss_nor_gradients():
    whole = tuple(part[:6] for part in sentences("train"))
    net = model()
    for a, b in zip(gradients(net, *whole), gradients(net, *trim(*whole)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_shards_weighed_by_their_target_tokens_have_the_gradient_of_the_batch(ranks):
    inputs, targets = trim(*(part[:5] for part in sentences("train")))
    net = model()
    whole = gradients(net, inputs, targets)
    parts = [(shard(inputs, r, ranks), shard(targets, r, ranks)) for r in range(ranks)]
    weights = [target_tokens(mine) for mine, _ in parts]
    assert weights == [int((aims >= 0).sum()) for _, aims in parts]
    assert len(set(weights)) > 1, "shards of equal weight would pass without weighing"
    found = [gradients(net, *part) for part in parts]
    for i, expected in enumerate(whole):
        mean = sum(w * each[i] for w, each in zip(weights, found, strict=True)) / sum(weights)
        torch.testing.assert_close(mean, expected, rtol=1e-12, atol=1e-12)


def test_a_token_counts_unless_the_targets_or_the_caller_say_that_it_does_not():
    """Token 0 is a word like any other: what is padding is said, not guessed."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(3, 5, 7, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 3, (3, 5), generator=generator)
    flat = outputs.flatten(0, 1)
    assert token_loss(outputs, targets) == functional.cross_entropy(flat, targets.flatten())
    ignoring = functional.cross_entropy(flat, targets.flatten(), ignore_index=0)
    assert token_loss(outputs, targets, ignore_index=0).item() == pytest.approx(ignoring.item())
    masked = targets.masked_fill(targets == 0, -100)
    assert token_loss(outputs, masked).item() == pytest.approx(ignoring.item())


@pytest.mark.parametrize("split", ["train", "test"])
def test_target_tokens_are_counted_from_the_inputs(split):
    inputs, targets = sentences(split)
    assert target_tokens(inputs) == int((targets >= 0).sum())


def of_its_own_words(comm, batch):
    net = LSTM(11, 8, dtype=torch.float64)
    how = {"loss": token_loss, "weight": target_tokens, "lr": 0.5}
    return STRATEGIES["ddp"](comm, net, [batch] * 3, "sgd", **how)


def test_a_text_with_words_of_its_own_trains_as_in_one_process():
    """Tokens 0 and 2 are words in it, where the package's sentences have padding and <end>."""
    draw = torch.Generator().manual_seed(0)
    inputs, targets = torch.randint(0, 11, (2, 8, 6), generator=draw)
    for row in range(8):
        targets[row, 6 - row // 2 :] = -100
    assert target_tokens(inputs, targets) == int((targets >= 0).sum()) != target_tokens(inputs)
    net = LSTM(11, 8, dtype=torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    expected = []
    for _ in range(3):
        loss = token_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    found = dlviz.launch(of_its_own_words, 3, args=((inputs, targets),)).results[0]
    assert found["losses"] == pytest.approx(expected, rel=1e-12)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(found["state"][name], value, rtol=1e-12, atol=1e-12)


def test_an_lstm_learns_towards_the_entropy_and_not_below_it():
    data = sentences("train")
    net = LSTM(len(vocabulary()), 32)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for inputs, targets in batches(*data, batch=16, steps=40):
        inputs, targets = trim(inputs, targets)
        loss = token_loss(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        inputs, targets = trim(*(part[:300] for part in sentences("test")))
        unseen = token_loss(net(inputs), targets).item()
    assert entropy_per_token() < unseen < 1.4 * entropy_per_token()


def test_float64_weights_are_the_float32_weights_and_follow_from_the_seed():
    torch.manual_seed(9)
    single, double = LSTM(9, 4, seed=2), LSTM(9, 4, seed=2, dtype=torch.float64)
    for a, b in zip(single.parameters(), double.parameters(), strict=True):
        assert b.dtype == torch.float64 and torch.equal(a.double(), b)
    assert not torch.equal(single[2].weight, LSTM(9, 4, seed=3)[2].weight)


def test_text_longer_than_the_window_is_refused():
    net = model(window=5)
    assert net(torch.ones(2, 5, dtype=torch.int64)).shape == (2, 5, 45)
    with pytest.raises(ValueError, match="^the text is 6 tokens long and the model's window=5"):
        net(torch.ones(2, 6, dtype=torch.int64))


def test_only_padding_is_refused():
    with pytest.raises(ValueError, match=r"^the targets \(2, 3\) are padding alone"):
        token_loss(torch.zeros(2, 3, 45), torch.full((2, 3), -100))
