"""Batch norm under data parallelism: each shard's own statistics, or those of the whole batch.

In batch norm the output for one example depends on the others. A plain `nn.BatchNorm` only sees its
rank's shard, so four ranks with 16 digits each train another network than one process with 64: the
first gradient of the small network of the tests is off by 32 % of its length. `SyncBatchNorm`
gathers count, mean and squares of every shard, so that all ranks normalise by the statistics of the
whole batch, and sends gradients back through them:

    forward    n_r, mean_r, M_r  --all_gather-->  N = sum n_r
                                                  mean = sum n_r mean_r / N
                                                  var = sum (M_r + n_r (mean_r - mean)^2) / N
    backward   s_r = sum of w_r dy,  t_r = sum of w_r dy xhat  --all_reduce-->  s, t
               dx = gamma / sqrt(var + eps) * (dy - (s + xhat t) / (N w_r))

where M_r is the sum of the squares of x - mean_r. Each rank's loss depends on all ranks' x through
the statistics, and counts by the weight w_r of its shard. torch's own assumes equal w_r.

Source: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
Internal Covariate Shift", ICML 2015. In PyTorch: torch.nn.SyncBatchNorm.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from dlviz.cluster import Comm


class SyncBatchNorm(_BatchNorm):
    """Batch norm over dim 1 of (B, C, ...) with the joint statistics of all ranks' inputs, which
    may be unequal or empty. `shard_weight` is what this rank's loss is the mean of; None: dim 0 of
    the input. `DDP` and the strategies set it. In evaluation it is `nn.BatchNorm`.

    Cost: an all-gather of 2C+1 numbers in forward, an all-reduce of 2C in backward.
    """

    def __init__(self, comm: Comm, *args: Any, **keywords: Any):
        super().__init__(*args, **keywords)
        self.comm: Comm | None = comm
        self.shard_weight: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "comm": None}  # a copy of the layer, or a file, has no ranks

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, comm: Comm) -> nn.Module:
        """`module` with every `nn.BatchNorm` in it replaced by one over all ranks of `comm`, with
        the same parameters and buffers. Convert before you make the optimizer and `DDP`."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            about = module.eps, module.momentum, module.affine, module.track_running_stats
            norm = cls(comm, module.num_features, *about)
            norm.weight, norm.bias = module.weight, module.bias
            norm.running_mean, norm.running_var = module.running_mean, module.running_var
            norm.num_batches_tracked = module.num_batches_tracked
            return norm.train(module.training)
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child, comm))
        return module

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm needs (B, C, ...), not {tuple(input.shape)}.")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        if self.comm is None:
            raise ValueError(
                "this SyncBatchNorm is a copy, which has no ranks to train with: set its comm, or "
                "call eval()."
            )
        weight = len(input) if self.shard_weight is None else self.shard_weight
        y, count, mean, var = _Normalise.apply(input, self.comm, self.eps, weight)
        if self.running_mean is not None:
            self._track(count.item(), mean, var)
        if self.affine:
            shape = (1, -1, *[1] * (input.dim() - 2))
            weight, bias = self.shared(self.weight, self.bias)
            y = y * weight.view(shape) + bias.view(shape)
        return y

    def shared(self, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The `parameters` as a forward uses them; their gradients are those of this rank's
        inputs."""
        return parameters

    @torch.no_grad()
    def _track(self, count: float, mean: torch.Tensor, var: torch.Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = self.momentum
        if momentum is None:  # the plain average over all batches
            momentum = 1 / self.num_batches_tracked.item()
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_((var * count / (count - 1)).to(self.running_var.dtype), momentum)


class _Normalise(torch.autograd.Function):
    """Forward: (x - mean) / sqrt(var + eps) with the statistics of all ranks. Backward: through x
    and through the statistics, on which every rank's loss depends."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, x: torch.Tensor, comm: Comm, eps: float, weight: float
    ) -> tuple[torch.Tensor, ...]:
        columns = x.transpose(0, 1).flatten(1)  # (C, n_r)
        n = columns.shape[1]
        mean = columns.sum(1) / max(n, 1)  # (C,)
        squares = (columns - mean[:, None]).square().sum(1)
        own = torch.cat([mean.new_tensor([n]), mean, squares])
        everyone = own.new_empty(comm.size, len(own))
        comm.all_gather(everyone, own)
        counts, means, squares = everyone.split([1, len(mean), len(mean)], dim=1)
        count = counts.sum()
        if count <= 1:
            raise ValueError(
                "batch norm needs more than 1 value per channel to train, on all ranks together."
            )
        mean = (counts * means).sum(0) / count
        var = (squares + counts * (means - mean).square()).sum(0) / count
        scale = (var + eps).rsqrt()
        xhat = (columns - mean[:, None]) * scale[:, None]
        y = xhat.unflatten(1, (len(x), *x.shape[2:])).transpose(0, 1)
        ctx.save_for_backward(xhat, scale, count)
        ctx.comm, ctx.weight = comm, weight
        ctx.mark_non_differentiable(count, mean, var)
        return y, count, mean, var

    @staticmethod
    @once_differentiable  # a second derivative would lack the other ranks' sums
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        xhat, scale, count = ctx.saved_tensors
        dy = gradients[0].transpose(0, 1).flatten(1)  # (C, n_r)
        sums = torch.stack([dy.sum(1), (dy * xhat).sum(1)]) * ctx.weight  # (2, C)
        if not ctx.weight:
            sums.zero_()  # the gradient of an empty shard may be NaN
        ctx.comm.all_reduce(sums)
        if ctx.weight:
            s, t = sums[:, :, None] / (count * ctx.weight)
            dy = dy - s - xhat * t
        dx = dy * scale[:, None]
        shape = gradients[0].shape
        dx = dx.unflatten(1, (shape[0], *shape[2:])).transpose(0, 1)
        return dx, None, None, None


def weigh_norms(model: nn.Module, weight: float) -> None:
    """Set the weight of this rank's shard in the SyncBatchNorm layers of `model`."""
    for module in model.modules():
        if isinstance(module, SyncBatchNorm):
            module.shard_weight = weight
