"""models.Transformer: against torch's own layers; what its weights and its dropout depend on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dlviz.models import Transformer, seed_layers, token_loss
from dlviz.models.dropout import Dropout, keep_mask
from dlviz.models.transformer import Block


def tokens(rows=3, length=7, vocabulary=10):
    return torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(1))


def test_a_block_computes_what_torchs_own_layer_does():
    h = 24
    own = Block(h, heads=4, kv_heads=4, dropout=0.0, seed=0, number=0).double()
    torchs = nn.TransformerEncoderLayer(
        h, 4, 4 * h, 0.0, "gelu", batch_first=True, norm_first=True, dtype=torch.float64
    )
    state, qkv = own.state_dict(), [getattr(own.attention, name) for name in "qkv"]
    names = {"self_attn.out_proj": "attention.output", "linear1": "mlp.up", "linear2": "mlp.down"}
    given = {
        f"{theirs}.{what}": state[f"{ours}.{what}"]
        for theirs, ours in {**names, "norm1": "norm1", "norm2": "norm2"}.items()
        for what in ("weight", "bias")
    }
    given["self_attn.in_proj_weight"] = torch.cat([layer.weight for layer in qkv])
    given["self_attn.in_proj_bias"] = torch.cat([layer.bias for layer in qkv])
    torchs.load_state_dict(given)
    x = torch.randn(2, 5, h, dtype=torch.float64)
    causal = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    torch.testing.assert_close(own(x), torchs(x, causal, is_causal=True), rtol=1e-12, atol=1e-12)


def test_grouped_queries_are_plain_attention_with_keys_and_values_repeated():
    plain = Block(24, 6, 6, 0.0, 0, 0).attention.double()
    grouped = Block(24, 6, 2, 0.0, 0, 0).attention.double()
    state = grouped.state_dict()
    for name in ("k", "v"):
        for what in ("weight", "bias"):
            heads = state[f"{name}.{what}"].unflatten(0, (2, 4))
            state[f"{name}.{what}"] = heads.repeat_interleave(3, 0).flatten(0, 1)
    plain.load_state_dict(state)
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    torch.testing.assert_close(grouped(x), plain(x), rtol=1e-12, atol=1e-12)


def test_a_token_is_predicted_from_those_before_it_and_the_output_is_tied():
    net = Transformer(2, 16, 4, 10, 8).double()
    text = tokens()
    other = text.clone()
    other[:, 4] = (other[:, 4] + 1) % 10
    before, after = net(text), net(other)
    assert before.shape == (3, 7, 10)
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any(-1).all()
    with torch.no_grad():
        net.tokens.weight[3] = 0
    assert not net(text)[..., 3].any() and net(text)[..., 2].all(), "a logit's weights"


def test_a_shard_without_rows_has_gradients_of_zero():
    net = Transformer(1, 16, 4, 10, 8, kv_heads=2, dropout=0.1)
    nothing = torch.zeros(0, 7, dtype=torch.int64)
    token_loss(net(nothing), nothing).backward()
    assert not any(p.grad.any() for p in net.parameters())


def test_a_block_built_alone_has_the_models_weights():
    net = Transformer(3, 16, 4, 10, 8, kv_heads=2, seed=5)
    alone = seed_layers(Block(16, 4, 2, 0.0, 5, 2), 5, first=2 + 2 * 8)  # eight layers a block
    for name, value in net.blocks[2].state_dict().items():
        assert torch.equal(value, alone.state_dict()[name]), name
    assert not torch.equal(net.blocks[0].mlp.up.weight, net.blocks[1].mlp.up.weight)
    assert not torch.equal(Transformer(1, 16, 4, 10, 8).tokens.weight, net.tokens.weight)


def test_dropout_drops_the_same_cells_however_the_tensor_is_cut():
    whole = keep_mask(0.3, (4, 6, 10), seed=1, site=2, step=3)
    for dim, length in enumerate(whole.shape):
        for first, last in [(0, 1), (1, length - 1), (length - 1, length)]:
            shape = list(whole.shape)
            shape[dim] = last - first
            part = keep_mask(0.3, shape, 1, 2, 3, start={dim: first})
            assert torch.equal(part, whole.narrow(dim, first, last - first))
    corner = keep_mask(0.3, (2, 3, 5), 1, 2, 3, start={0: 2, 1: 3, 2: 5})
    assert torch.equal(corner, whole[2:, 3:, 5:])


def test_dropout_drops_its_share_and_other_cells_elsewhere():
    def drawn(seed=0, site=0, step=0):
        return keep_mask(0.25, (64, 32, 64), seed, site, step).float()

    first = drawn()
    assert first.mean().item() == pytest.approx(0.75, abs=0.005)
    for dims in [(0, 1), (0, 2), (1, 2)]:
        assert 0.6 < first.mean(dims).min() and first.mean(dims).max() < 0.9
    for other in (drawn(seed=1), drawn(site=1), drawn(step=1), first.roll(1, 0), first.roll(1, 2)):
        assert (first * other).mean().item() == pytest.approx(0.75**2, abs=0.01)
    assert torch.equal(first, drawn())


def test_dropout_counts_its_steps_and_preserves_the_mean():
    drop, x = Dropout(0.5, seed=0, site=1), torch.ones(40, 50)
    masks = [drop(x) for _ in range(2)]
    assert drop.step == 2 and not torch.equal(*masks)
    assert set(masks[0].unique().tolist()) == {0.0, 2.0}
    drop.step = 0
    assert torch.equal(drop(x), masks[0])
    assert torch.equal(drop.eval()(x), x)
    net = Transformer(2, 16, 4, 10, 8, dropout=0.2)
    assert len({each.site for each in net.modules() if isinstance(each, Dropout)}) == 7
    text = tokens()
    assert not torch.equal(net(text), net(text))
    net.eval()
    assert torch.equal(net(text), net(text))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heads": 5}, "heads=5 cannot share hidden=16: .* Use 1, 2, 4, 8 or 16 heads"),
        ({"kv_heads": 3}, "kv_heads=3 cannot serve heads=4: .* Use kv_heads=1, 2 or 4"),
        ({"dropout": 1.0}, "dropout=1.0 is no share of the cells that leaves some"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        Transformer(1, 16, **{"heads": 4, "vocabulary": 9, "sequence": 8} | options)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ([[0, 1], [2, 10]], "token 10 at place 1 of row 1 is not in the model's vocabulary=10"),
        ([[-1, 1]], "token -1 at place 0 of row 0 is not"),
        ([[1] * 9], "the text is 9 tokens long and the model's sequence=8: cut"),
    ],
)
def test_text_that_the_model_cannot_read_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        Transformer(1, 16, 4, 10, 8)(torch.tensor(text))
