"""A compressor under torch's own DistributedDataParallel, as its communication hook.

    net = DistributedDataParallel(model)
    net.register_comm_hook(HookState(make("one_bit")), hook)

torch calls the hook with each full bucket, of which it returns the mean. Here each rank's codes go
to all others, or are all-reduced where they can be added (collectives/coded.py, which does the same
by messages that a Trace shows).

Source: torch.distributed.algorithms.ddp_comm_hooks, which has fp16_compress_hook and powerSGD_hook.
"""

# No deferred annotations here: torch compares those of the hook with its own classes.
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from dlviz.compression.compressor import Code, Compressor
from dlviz.compression.feedback import Feedback
from dlviz.compression.packing import pack, unpack


class HookState:
    """What the hook carries from step to step: for each bucket a compressor of its own, and with
    `feedback` what its codes have lost. `group` is the process group, by default the world."""

    def __init__(self, compressor: Compressor, feedback: bool = True, group: Any = None):
        self.compressor, self.feedback, self.group = compressor, feedback, group
        self._of: dict[tuple[int, int], Feedback] = {}

    def of(self, bucket: GradBucket) -> Feedback:
        """The compressor and residual of `bucket`; torch cuts its buckets anew after a step."""
        key = bucket.index(), bucket.buffer().numel()
        if key not in self._of:
            shapes = [gradient.shape for gradient in bucket.gradients()]
            rank = dist.get_rank(self.group)
            own = self.compressor.for_bucket(shapes, rank, bucket.index())
            self._of[key] = Feedback(own, self.feedback)
        return self._of[key]


def hook(state: HookState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean of a bucket's gradients over all ranks, by their codes."""
    feedback, row = state.of(bucket), bucket.buffer()  # (elements,)
    ranks = dist.get_world_size(state.group)
    v = feedback.apply(row.div_(ranks))
    by = feedback.compressor
    by.checked(v)
    if by.linear:
        for code in by.rounds(v, row):
            dist.all_reduce(code, group=state.group)
    else:
        code = by.of_finite(v)
        total = _gathered(state, by, code, len(row))
        feedback.keep(code)
        row.copy_(total)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(row)
    return future


def _gathered(state: HookState, by: Compressor, code: Code, n: int) -> torch.Tensor:
    """The sum of what all ranks' codes of n values stand for."""
    ranks = dist.get_world_size(state.group)
    mine = pack(code, by.fixed)
    sizes = [torch.tensor([mine.numel()]) for _ in range(ranks)]
    if not by.fixed:  # then the lengths differ
        dist.all_gather(sizes, torch.tensor([mine.numel()]), group=state.group)
    longest = max(int(size) for size in sizes)
    rows = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
    padded = torch.nn.functional.pad(mine, (0, longest - mine.numel()))
    dist.all_gather(rows, padded, group=state.group)
    codes = [
        unpack(row[: int(size)], code, lengths=not by.fixed)
        for row, size in zip(rows, sizes, strict=True)
    ]
    return torch.stack([by.decode(each, n) for each in codes]).sum(0)
