"""Error feedback, the contraction that it needs, and PowerSGD, which is summed on its path."""

import copy
import math
import warnings

import pytest
import torch

from dlviz.compression import Feedback, make, variance


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("name", "options"),
    [("one_bit", {}), ("topk", {"share": 0.05}), ("qsgd", {"bits": 6}), ("threshold", {"at": 1.0})],
)
def test_what_was_decoded_and_the_residual_make_up_all_gradients(name, options):
    by, total, decoded = make(name, **options), torch.zeros(600), torch.zeros(600)
    feedback = Feedback(by)
    assert feedback.norm == 0
    for step in range(20):
        g = drawn(600, seed=step)
        v = feedback.apply(g).clone()
        code = by.encode(v)
        found = by.decode(code, 600)
        feedback.keep(code)
        total, decoded = total + g, decoded + found
        assert feedback.norm == pytest.approx(float((v - found).norm()))
    assert torch.allclose(total, decoded + feedback.residual, atol=1e-4)


def test_feedback_that_is_off_adds_nothing():
    feedback, g = Feedback(make("one_bit"), on=False), drawn(8)
    feedback.keep(make("one_bit").encode(g))
    assert torch.equal(feedback.apply(g), drawn(8)) and feedback.norm == 0


@pytest.mark.parametrize("v", [drawn(600), drawn(600).exp(), -drawn(600).square(), torch.ones(600)])
def test_one_bit_and_topk_are_contractions(v):
    def left(by):
        return float((v - by.decode(by.encode(v), len(v))).square().sum() / v.square().sum())

    for share in (0.01, 0.1, 0.5):
        assert left(make("topk", share=share)) <= 1 - share + 1e-6  # delta = k/n
    assert left(make("one_bit")) < 1
    decoded = make("one_bit").decode(make("one_bit").encode(v), len(v))
    assert left(make("one_bit")) == pytest.approx(  # a projection
        1 - float(decoded.square().sum() / v.square().sum()), abs=1e-5
    )


def test_feedback_warns_of_a_code_that_loses_more_than_there_is():
    for by in (make("qsgd", bits=2), make("qsgd", bits=4), make("topk_qsgd", bits=2)):
        assert variance(by, 4096) > 1
        with pytest.warns(UserWarning, match=r"loses .* \|v\|² .* its residual grows"):
            Feedback(by)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Feedback(make("qsgd", bits=2), on=False)
        for name in ("one_bit", "topk", "topk_qsgd", "lossless", "power", "fp16"):
            Feedback(make(name))
        Feedback(make("qsgd", bits=5))


def test_feedback_of_few_levels_diverges_and_of_one_bit_does_not():
    norms = {}
    for name, options in (("qsgd", {"bits": 2}), ("one_bit", {})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            feedback = Feedback(make(name, **options))
        for step in range(30):
            v = feedback.apply(drawn(512, seed=step))
            feedback.keep(feedback.compressor.encode(v))
        norms[name] = feedback.norm / float(drawn(512).norm())
    assert norms["one_bit"] < 3 and norms["qsgd"] > 1e3


def test_a_residual_is_saved_and_one_of_another_length_refused():
    feedback, by = Feedback(make("one_bit").for_bucket([(20, 30)], 0, 0)), make("one_bit")
    assert Feedback(by).state_dict()["residual"] is None
    feedback.apply(drawn(600))
    state = copy.deepcopy(feedback.state_dict())
    for same in (Feedback(by), Feedback(by.for_bucket([(600,)], 1, 2))):
        same.load_state_dict(state)
        assert torch.equal(same.apply(torch.zeros(600)), drawn(600))
        with pytest.raises(ValueError, match="residual of 600 values cannot be added to 599"):
            same.apply(torch.zeros(599))
    other = Feedback(by)
    other.apply(drawn(500))
    for wrong in (Feedback(by.for_bucket([(599,)], 0, 0)), other):
        with pytest.raises(ValueError, match="saved residual is of 600 values and this one of"):
            wrong.load_state_dict(state)


# -- PowerSGD ------------------------------------------------------------------------------------
SHAPES = [(12, 4), (12,), (4, 3, 2, 2), (4,)]
LENGTH = 12 * 4 + 12 + 48 + 4


def summed(by, vectors):
    """For each rank the sum of all `vectors` by codes that are added by turns (rank 0's round, all
    others', ...), and what its own code lost."""
    ranks = [by.for_bucket(SHAPES, rank, 0) for rank in range(len(vectors))]
    found = [(torch.empty_like(v), v.clone()) for v in vectors]
    rounds = [each.rounds(v, out) for each, (out, v) in zip(ranks, found, strict=True)]
    for _ in range(by.codes):
        codes = [next(each) for each in rounds]
        total = torch.stack(codes).sum(0)
        for code in codes:
            code.copy_(total)
    assert [next(each, None) for each in rounds] == [None] * len(rounds)
    return found


def alone(by, v):
    """The sum over one rank."""
    out = torch.empty_like(v)
    for _ in by.rounds(v.clone(), out):
        pass
    return out


def test_power_is_exact_at_full_rank():
    vectors = [drawn(LENGTH, seed=rank) for rank in range(3)]
    by = make("power", rank=4)
    for total, _ in summed(by, vectors):
        assert torch.allclose(total, sum(vectors), atol=1e-5)
    for n in (1, 7, 26, 513):  # one nearly square matrix
        most = -(-n // (math.isqrt(n - 1) + 1))
        square = make("power", rank=most)
        assert torch.allclose(square.decode(square.encode(drawn(n)), n), drawn(n), atol=1e-4)


def test_power_over_ranks_is_the_papers_algorithm_on_their_sum():
    """Algorithm 1 on the sum: P = M Q, orthogonalised, Q = M^T P, M ~ P Q^T; all as one rank."""
    vectors = [drawn(LENGTH, seed=rank) for rank in range(3)]
    found = summed(make("power", rank=2), vectors)
    whole = sum(vectors)
    start = make("power", rank=2).for_bucket(SHAPES, 9, 0)
    one = alone(start, whole)
    parts, expected = whole.split([48, 12, 48, 4]), []
    rng = make("power", rank=2).for_bucket(SHAPES, 0, 0).rng
    for part, shape in zip(parts, ((12, 4), None, (4, 12), None), strict=True):
        q = torch.from_numpy(rng.standard_normal((shape[1] if shape else 0, 2), "f4"))
        if shape:
            m = part.view(shape)
            p = torch.linalg.qr(m @ q).Q
            part = (p @ (m.T @ p).T).flatten()
        expected.append(part)
    for total, _ in found:
        assert torch.allclose(total, torch.cat(expected), atol=1e-5)
        assert torch.allclose(total, one, atol=1e-5)
    lost = sum(lost for _, lost in found)
    assert torch.allclose(lost, whole - found[0][0], atol=1e-4)  # what feedback holds


def test_power_sends_its_factors_and_the_vectors_as_they_are():
    by = make("power", rank=2).for_bucket(SHAPES, 0, 0)
    code = by.encode(drawn(LENGTH))
    assert by.nbytes(LENGTH) == sum(part.nbytes for part in code)
    assert by.nbytes(LENGTH) == 4 * (2 * (12 + 4) + 12 + 2 * (4 + 12) + 4)
    assert torch.equal(by.decode(code, LENGTH)[48:60], drawn(LENGTH)[48:60])
    assert sum(each.numel() for each in by.rounds(drawn(LENGTH), torch.empty(LENGTH))) == (
        by.nbytes(LENGTH) // 4
    )


def test_power_starts_from_its_last_q_and_so_finds_the_strongest_direction():
    m = torch.outer(drawn(12), drawn(5, seed=1)) + 0.3 * drawn(12, 5, seed=2)
    best = float(torch.linalg.svdvals(m)[1:].square().sum())
    by, lost = make("power").for_bucket([(12, 5)], 0, 0), []
    for _ in range(8):
        found = alone(by, m.flatten())
        lost.append(float((found - m.flatten()).square().sum()))
    assert lost[-1] == pytest.approx(best, rel=1e-3) and lost[0] > best
    assert not alone(by, torch.zeros(60)).any()
    assert alone(by, m.flatten()).any()
