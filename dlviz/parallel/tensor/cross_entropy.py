"""Cross-entropy of logits that are cut along the vocabulary: no rank holds all logits of a token.

    loss = log Σ exp(z - max z) - (z_target - max z)      of each token, z its V logits

    max z              the largest of this rank's V/n, then of all ranks'
    Σ exp(z - max z)   the sum over this rank's, then over all ranks'
    z_target           from its rank, 0 from the others; summed

Three all-reduces of one number per token replace an all-gather of V logits per token. Backward
needs none: the gradient of a logit is its softmax, less 1 at the target, and each rank has both.

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3, "we fuse the output of the parallel GEMM
with the cross entropy loss". In PyTorch: torch.distributed.tensor.parallel.loss_parallel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm
from dlviz.models.language import IGNORED
from dlviz.models.transformer import check_tokens
from dlviz.parallel.tensor.conjugate import reduced


def parallel_cross_entropy(
    comm: Comm,
    logits: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int = IGNORED,
    all_reduce: str = "ring",
) -> torch.Tensor:
    """The mean cross-entropy (nats) over the targets (B, s), except `ignore_index`, of this rank's
    `logits` (B, s, V/n) and the other ranks'; the same on all ranks, and NaN without a target.
    Raises ValueError for a target that is not in the vocabulary.

    Cost: three all-reduces of B * s numbers forward, nothing backward.
    """
    counts = targets != ignore_index
    targets = targets.masked_fill(~counts, 0)
    check_tokens(targets, comm.size * logits.shape[-1])
    losses = _CrossEntropy.apply(logits, targets, comm, all_reduce)  # (B, s)
    return losses.masked_fill(~counts, 0).sum() / counts.sum()


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, comm: Comm, all_reduce: str
    ) -> torch.Tensor:
        def over_ranks(numbers: torch.Tensor, what: str, op: str = "sum") -> torch.Tensor:
            if comm.size == 1:
                return numbers
            return reduced(numbers, comm, all_reduce, f"loss {what}", "forward", op)

        largest = over_ranks(logits.amax(-1), "max", "max")  # (B, s)
        logits = logits - largest[..., None]  # (B, s, V/n), none above 0: exp cannot overflow
        mine = targets - comm.rank * logits.shape[-1]  # (B, s)
        others = (mine < 0) | (mine >= logits.shape[-1])  # the target is another rank's
        place = mine.masked_fill(others, 0)[..., None]  # (B, s, 1)
        target = logits.gather(-1, place)[..., 0].masked_fill(others, 0)  # (B, s), a partial sum
        target = over_ranks(target, "target")
        softmax = logits.exp_()
        total = over_ranks(softmax.sum(-1), "sum")  # (B, s)
        ctx.save_for_backward(softmax.div_(total[..., None]), place, others)
        return total.log() - target

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        softmax, place, others = ctx.saved_tensors
        scaled = softmax * gradient[..., None]  # (B, s, V/n)
        scaled.scatter_add_(-1, place, -gradient.masked_fill(others, 0)[..., None])
        return scaled, None, None, None
