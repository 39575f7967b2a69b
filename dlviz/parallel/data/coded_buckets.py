"""Buckets of gradients summed by their codes (collectives/coded.py), in place of an all-reduce.

    bucket  | mean gradients, each rank's times its share | used | counters | weight |
              coded: w_r g_r / W + what was lost before      dense: W = sum_r w_r is known first

The sum of what the codes stand for is the mean gradient. A bucket has a code, and what its codes
have lost so far, of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.collectives.coded import CodedAllReduce, compare, how_of
from dlviz.compression import Compressor, make
from dlviz.parallel.data.buckets import Bucket
from dlviz.parallel.step.sharded_step import all_reduce_called
from dlviz.parallel.step.training import Options


class CodedOptions(Options, total=False):
    """Keyword arguments of DDP's `train`: those of every strategy, and of a compressor."""

    bits: int
    per: int
    elias: bool
    share: float
    at: float
    keep: int
    rank: int


def compressor_of(name: str | None, options: CodedOptions) -> Compressor | None:
    """The compressor of that name, with its options, which are taken out of `options`. Raises
    ValueError for an unknown one, and for options without a name."""
    own = CodedOptions.__annotations__.keys() - Options.__annotations__.keys()
    given: dict[str, Any] = {key: options.pop(key) for key in own & options.keys()}
    if name is None and given:
        raise ValueError(f"{next(iter(given))}= is of a compressor: give compress= as well.")
    return None if name is None else make(name, **given)


class CodedBuckets(nn.Module):
    """Sums buckets by codes of `compressor`; with `feedback` what a code loses counts in the next
    step. `how` is one of `coded.HOW`. `names` are those of the parameters, for errors. A module
    without parameters, whose state is what this rank's codes have lost."""

    def __init__(
        self,
        comm: Comm,
        compressor: Compressor,
        how: str | None,
        feedback: bool,
        all_reduce: str,
        names: Callable[[nn.Parameter], str],
    ):
        super().__init__()
        how = how_of(compressor, how)
        compare(comm, compressor, how, f"feedback={feedback}")
        self._reduce = all_reduce_called(all_reduce)
        self._make = partial(CodedAllReduce, how=how, feedback=feedback, reduce=self._reduce)
        self._rank, self._compressor, self._names = comm.rank, compressor, names
        self._codes: dict[tuple[nn.Parameter, ...], CodedAllReduce] = {}
        self._lost: dict[nn.Parameter, torch.Tensor] = {}  # when buckets were last cut

    def fit(self, buckets: Sequence[Bucket]) -> None:
        """Prepare for `buckets`; those of the same parameters as before go on with their codes,
        others with what was lost of each parameter's gradient."""
        before, self._codes = self._codes, {}
        for parameters, code in before.items():
            if code.own.residual is not None:
                rows = code.own.residual.split([p.numel() for p in parameters])
                self._lost |= zip(parameters, rows, strict=True)
        for bucket in buckets:
            key = tuple(bucket.parameters)
            code = self._codes[key] = before.get(key) or self._code(bucket, len(self._codes))
            if key not in before and self._lost.keys() & bucket.slots.keys():
                nothing = bucket.values.new_zeros
                lost = [self._lost.get(p, nothing(p.numel())) for p in bucket.parameters]
                code.own.residual = torch.cat(lost)

    def _code(self, bucket: Bucket, number: int) -> CodedAllReduce:
        if bucket.flat.is_complex():
            raise ValueError("complex gradients have no code: leave out compress=.")
        shapes = [p.shape for p in bucket.parameters]
        own = self._compressor.for_bucket(shapes, self._rank, number)
        with warnings.catch_warnings():
            if self._rank or number:  # one warning is enough
                warnings.simplefilter("ignore")
            return self._make(own)

    def sum_bucket(self, comm: Comm, bucket: Bucket, number: int) -> None:
        """Put the mean gradients of all ranks into `bucket`."""
        code = self._codes[tuple(bucket.parameters)]
        values, rest = bucket.values, bucket.rest
        fields: dict[str, Any] = {"group": comm.name, "bucket": number, "nbytes": values.nbytes}
        with comm.span("collective", f"bucket {number}", **fields) as span:
            self._reduce(comm, rest)
            if bucket.weight:
                values /= bucket.weight  # mean gradients: codes have a limited range
                bucket.total.fill_(1)
                code(comm, values, partial(self._whose, bucket))
                span.fields["residual"] = code.own.norm

    def _whose(self, bucket: Bucket, index: int) -> str:
        for p in bucket.parameters:
            if index < p.numel():
                return f"the gradient of {self._names(p)}"
            index -= p.numel()
        raise AssertionError("an element of no parameter")

    def get_extra_state(self) -> list[Any]:
        return [code.state_dict() for code in self._codes.values()]

    def set_extra_state(self, state: list[Any]) -> None:
        for code, one in zip(self._codes.values(), state, strict=True):
            code.load_state_dict(one)
