"""The embedding and the cross-entropy that are cut along the vocabulary, against plain torch."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import dlviz
from dlviz import metrics
from dlviz.parallel.tensor.cross_entropy import parallel_cross_entropy
from dlviz.parallel.tensor.embedding import VocabularyParallelEmbedding

RANKS = 8
AXES = [1, 2, 3, 4, 6, 8]
V, H, B, S = 48, 5, 3, 7
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
IGNORED = 2  # a token, as padding is one


def text():
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(V, (B, S + 1), generator=generator)
    tokens[0, 3:5] = IGNORED
    tokens[1, 2] = V - 1
    return tokens[:, :-1], tokens[:, 1:]


def whole_weight(dtype):
    """Large enough that a softmax without its maximum overflows."""
    weight = torch.randn(V, H, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    return (30 * weight).to(dtype)


class Largest(TorchDispatchMode):
    """The most elements of a tensor that anything inside makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
        self.elements = max([self.elements, *(each.numel() for each in made)])
        return out


def learn(embed, logits_of, loss_of):
    """Logits, loss, and the gradient that the embedding's weight has from both its uses."""
    tokens, targets = text()
    logits = logits_of(torch.tanh(embed(tokens)))
    loss = loss_of(logits, targets)
    loss.backward()
    return logits.detach(), loss.detach()


def one_process(dtype):
    weight = whole_weight(dtype).requires_grad_()
    found = learn(
        lambda tokens: functional.embedding(tokens, weight),
        lambda x: x @ weight.T,
        lambda logits, targets: functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED
        ),
    )
    return *found, weight.grad


def on_ranks(comm):
    found = {}
    for ranks in AXES:
        axis = comm.split(0 if comm.rank < ranks else None)
        for number, dtype in enumerate(TOLERANCE if axis else ()):
            table = VocabularyParallelEmbedding(axis, V, H).to(dtype)
            table.load({"weight": whole_weight(dtype)})
            with Largest() as seen, comm.span("phase", step=2 * ranks + number):
                values = learn(
                    table,
                    table.logits,
                    partial(parallel_cross_entropy, axis, ignore_index=IGNORED),
                )
            found[ranks, dtype] = *values, table.weight.grad, seen.elements
    return found


@pytest.fixture(scope="module")
def run():
    return dlviz.launch(on_ranks, RANKS)


def test_logits_loss_and_gradients_equal_one_process(run):
    for (ranks, dtype), (_, loss, _, _) in run.results[0].items():
        whole_logits, whole_loss, whole_gradient = one_process(dtype)
        parts = [run.results[rank][ranks, dtype] for rank in range(ranks)]
        logits = torch.cat([each[0] for each in parts], -1)
        gradient = torch.cat([each[2] for each in parts])
        for mine, value in [
            (logits, whole_logits), (loss, whole_loss), (gradient, whole_gradient)
        ]:  # fmt: skip
            assert (mine - value).norm() <= TOLERANCE[dtype] * value.norm(), (ranks, dtype)
        assert all(torch.equal(each[1], loss) for each in parts), "all ranks know the same loss"


def test_no_rank_ever_holds_the_logits_of_the_whole_vocabulary(run):
    for rank, found in enumerate(run.results):
        for (ranks, _), (*_, elements) in found.items():
            assert elements == B * S * V // ranks, (rank, ranks)


def test_the_loss_takes_three_all_reduces_of_a_number_a_token(run):
    trace = run.trace
    trace.validate()
    for ranks in AXES[1:]:
        step = trace.only(step=2 * ranks)  # float64
        for rank in range(ranks):
            spans = step.only(rank=rank, kind="collective").spans
            small = B * S * 8
            names = [name for name in spans.name.tolist() if "loss" in name]
            assert names == ["all-reduce loss max", "all-reduce loss target", "all-reduce loss sum"]
            assert spans.nbytes.tolist() == [B * S * H * 8, small, small, small, B * S * H * 8]
    assert metrics.bytes_sent(trace.only(step=2))[0] == 0


def outside(comm):
    table = VocabularyParallelEmbedding(comm, 4, 3)
    said = []
    for act in (
        lambda: table(torch.tensor([[0, 3], [1, 4]])),
        lambda: parallel_cross_entropy(comm, torch.zeros(1, 2, 2), torch.tensor([[3, -1]])),
        lambda: VocabularyParallelEmbedding(comm, 45, 3),
        lambda: table.load({"tokens.weight": torch.zeros(4, 3)}),
        lambda: table.load({}),
    ):
        with pytest.raises(ValueError) as error:
            act()
        said.append(str(error.value))
    return said


def test_a_token_outside_a_vocabulary_that_does_not_divide_and_a_strange_state_are_refused():
    for token, target, size, named, empty in dlviz.launch(outside, 2).results:
        assert token.startswith("token 4 at place 1 of row 1 is not in the model's vocabulary=4")
        assert target.startswith("token -1 at place 1 of row 0 is not in the model's vocabulary=4")
        assert size.startswith("vocabulary=45 cannot be split over 2 ranks")
        assert named == "the state of tokens holds tokens.weight: give weight."
        assert empty == "the state of tokens holds nothing: give weight."
