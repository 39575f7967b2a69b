"""All-reduce of what compressors make of a vector: fewer bytes on the wire, for some accuracy.

Codes meet by one of three methods; p is the number of ranks, c the bytes of one rank's code:

    all_gather      each rank's code goes to all others, who decode and add      (p-1) c
    all_reduce      codes that can be added (fp16, PowerSGD) are all-reduced     2(p-1)/p c
    reduce_scatter  a piece's codes go to its owner, who adds, codes the sum     2(p-1)/p c
                    and sends it to all

An all-gather sends less than a dense ring while p is below twice the ratio of dense to coded bytes;
from there on reduce_scatter does, which codes twice and so errs twice. 1-bit SGD carries both
errors over, each where it was made (`compression/feedback.py`).

What arrives is decoded and added in the order of the ranks, so all end with the same bits. A code
whose size depends on its values begins with the lengths of its parts, 8 bytes each; its receiver
learns the message's size from its header (`comm.probe`), which costs nothing on the wire.

Sources: F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs", Interspeech 2014 (reduce_scatter); D. Alistarh et al., "QSGD",
NeurIPS 2017 (all_gather); T. Vogels et al., "PowerSGD", NeurIPS 2019 (all_reduce). In PyTorch: a
communication hook of DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dlviz.cluster import Comm, check_tensor
from dlviz.collectives.code_methods import HOW, compare, exchange, how_of
from dlviz.collectives.flat import chunks_of, flattened
from dlviz.collectives.ring import all_reduce as ring
from dlviz.compression import Code, Compressor, Feedback, make, measure_coding
from dlviz.compression.compressor import first_infinite
from dlviz.compression.packing import bytes_of
from dlviz.counts import check_counts

__all__ = ["HOW", "CodedAllReduce", "all_reduce", "trials"]


class CodedAllReduce:
    """Sums vectors of one length, again and again, each coded by `compressor`. Every rank makes
    one, with equal arguments (`compare` them); calling it with a Comm sums a tensor in place.

    `how` is one of `HOW`, by default all_reduce where codes can be added, else all_gather.
    `feedback`: what a code loses is added to the next vector. On a paced run coding takes `seconds`
    to encode and to decode; None: as measured on this rank. `reduce` sums the codes of all_reduce.

    Raises ValueError for codes that cannot be summed by it.
    """

    def __init__(
        self,
        compressor: Compressor,
        how: str | None = None,
        feedback: bool = False,
        seconds: tuple[float, float] | None = None,
        reduce: Callable[[Comm, torch.Tensor], None] = ring,
    ):
        self.how = how_of(compressor, how)
        self.compressor, self.feedback = compressor, feedback
        self.own = Feedback(compressor, feedback)
        both = feedback and self.how == "reduce_scatter"
        self.of_sum = Feedback(compressor, both)  # of the piece that this rank owns
        self._seconds, self._reduce = seconds, reduce

    def __call__(
        self, comm: Comm, tensor: torch.Tensor, whose: Callable[[int], str] = "element {}".format
    ) -> None:
        """Sum `tensor` over all ranks of `comm`, in place. Raises ValueError for whole numbers, and
        before anything is sent for a value that is not finite, which `whose` names by its index."""
        check_tensor("all_reduce", tensor)
        if not tensor.is_floating_point():
            raise ValueError(f"a tensor of {tensor.dtype} has no code: give floating point.")
        with flattened(comm, tensor, "all_reduce") as row:
            if not len(row):
                return
            if (index := first_infinite(row)) is not None:
                raise ValueError(
                    f"{whose(index)} of rank {comm.members[comm.rank]} is {row[index]:g}, which no "
                    "code can carry: use a lower rate, or clip."
                )
            self._length = len(row)
            if comm.machine is not None and self._seconds is None:
                by = self.compressor
                self._seconds = measure_coding(by.name, len(row), **by.options)
                comm.begin()  # the measurement is not the device's work
            getattr(self, f"_{self.how}")(comm, self.own.apply(row), row)

    def state_dict(self) -> dict[str, Any]:
        """What this rank's codes have lost so far, and where its draws are, to be saved with its
        model."""
        return {
            "own": self.own.state_dict(),
            "of_sum": self.of_sum.state_dict(),
            "compressor": self.compressor.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with what was saved. Raises ValueError for residuals of another length."""
        self.own.load_state_dict(state["own"])
        self.of_sum.load_state_dict(state["of_sum"])
        self.compressor.load_state_dict(state["compressor"])

    # Each writes the sum over all ranks of what their codes of `v` stand for into `out`, which is
    # `v` itself without feedback; with it `v` is left what its own code lost.

    def _all_gather(self, comm: Comm, v: torch.Tensor, out: torch.Tensor) -> None:
        code = self._encode(comm, v)
        self.own.keep(code)
        same = [code] * comm.size
        codes = exchange(comm, self.compressor, same, like=same)
        out.copy_(in_order([self._decode(comm, each, len(v)) for each in codes]))

    def _reduce_scatter(self, comm: Comm, v: torch.Tensor, out: torch.Tensor) -> None:
        chunks = chunks_of(v, comm.size)
        lengths = [len(chunk) for chunk in chunks]
        own = lengths[comm.rank]
        codes = [self._encode(comm, chunk) for chunk in chunks]
        if self.feedback:
            for chunk, code in zip(chunks, codes, strict=True):
                if len(chunk):
                    self.compressor.subtract(chunk, code)
        with comm.span("phase", "reduce-scatter"):
            arrived = exchange(comm, self.compressor, codes, like=[codes[comm.rank]] * comm.size)
            total = in_order([self._decode(comm, code, own) for code in arrived])
        with comm.span("phase", "all-gather"):
            total = self.of_sum.apply(total)
            code = self._encode(comm, total)
            sums = exchange(comm, self.compressor, [code] * comm.size, like=codes)
            pieces = [self._decode(comm, *each) for each in zip(sums, lengths, strict=True)]
        if own:
            self.of_sum.keep(code)
        torch.cat(pieces, out=out)

    def _all_reduce(self, comm: Comm, v: torch.Tensor, out: torch.Tensor) -> None:
        rounds, number = self.compressor.rounds(v, out), self.compressor.codes
        for _ in range(number):
            with self._coding(comm, "encode", 1 / number, raw=v.nbytes) as span:
                code = next(rounds)
                span.fields["nbytes"] = code.nbytes
            self._reduce(comm, code)
        with self._coding(comm, "decode", 1.0, raw=v.nbytes, nbytes=code.nbytes):
            next(rounds, None)

    # -- codes and messages ----------------------------------------------------------------------
    def _encode(self, comm: Comm, v: torch.Tensor) -> Code:
        if not len(v):
            return []  # a piece of a vector that has fewer values than there are ranks
        with self._coding(comm, "encode", len(v) / self._length, raw=v.nbytes) as span:
            code = self.compressor.of_finite(v)
            span.fields["nbytes"] = bytes_of(code)
        return code

    def _decode(self, comm: Comm, code: Code, length: int) -> torch.Tensor:
        if not length:
            return torch.empty(0)
        fields = {"raw": 4 * length, "nbytes": bytes_of(code)}
        with self._coding(comm, "decode", length / self._length, **fields):
            return self.compressor.decode(code, length)

    def _coding(self, comm: Comm, name: str, share: float, **fields: Any) -> Any:
        """The span of coding that `share` of the vector."""
        seconds = self._seconds and self._seconds[name == "decode"] * share
        return comm.compute("compress", name, seconds, **fields)


def all_reduce(
    comm: Comm,
    tensor: torch.Tensor,
    compressor: Compressor,
    how: str | None = None,
    seconds: tuple[float, float] | None = None,
) -> None:
    """Sum `tensor` once over all ranks, in place: as `CodedAllReduce`, without feedback. Raises
    ValueError where two ranks' arguments differ: it names both."""
    compare(comm, compressor, how, seconds)
    CodedAllReduce(compressor, how, seconds=seconds)(comm, tensor)


def trials(
    comm: Comm,
    n: int,
    compress: str | None = None,
    how: str | None = None,
    seconds: tuple[float, float] | None = None,
    repeats: int = 3,
    **options: Any,
) -> None:
    """Sum `n` Gaussian float32 values that each rank draws, `repeats` times, by codes of the
    compressor `compress`, or by a ring if that is None; each is a step, which all ranks begin
    together. A worker for `launch`: `metrics.step_seconds` gives the times."""
    check_counts(n=n, repeats=repeats)
    own = torch.randn(n, generator=torch.Generator().manual_seed(comm.rank))
    reduce: Callable[[Comm, torch.Tensor], None] = ring
    if compress is not None:
        code = make(compress, **options).for_bucket([own.shape], comm.rank, 0)
        reduce = CodedAllReduce(code, how, seconds=seconds)
    for step in range(repeats):
        total = own.clone()
        comm.barrier()
        with comm.span("step", step=step):
            reduce(comm, total)


def in_order(rows: list[torch.Tensor]) -> torch.Tensor:
    """The sum of what the ranks' codes stand for, in the order of the ranks."""
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total
