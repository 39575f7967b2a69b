"""A linear layer cut over ranks: by columns of its product, or by rows.

y = x Wᵀ + b with x (B, k) and W (n, k), as torch stores it, on t ranks. With A = Wᵀ (k, n):

    column-parallel ("partition output")         row-parallel ("reduce output")
                 A0 | A1                                        A0
    x     ->   x·A0 | x·A1                       x0 | x1  ->    --    ->  x0·A0 + x1·A1
                                                                A1
    f before: each rank needs the whole x        g after: each rank has a partial sum of y
    b is cut as y is                             b is whole on each rank, added once, after the sum

Row after column needs nothing between them: the output of the one is the input of the other.

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3; the lecture's partition output and reduce
output. In PyTorch: ColwiseParallel and RowwiseParallel of torch.distributed.tensor.parallel.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.parallel.step.replicas import check_replicas
from dlviz.parallel.step.sharded_step import all_reduce_called
from dlviz.parallel.tensor.checks import check_divides, check_names, check_shape
from dlviz.parallel.tensor.conjugate import (
    f,
    g,
    gather_outputs,
    gather_sequence,
    scatter_sequence,
)
from dlviz.parallel.tensor.cut_parameter import cut_parameter
from dlviz.parallel.tensor.product import Entered, Product
from dlviz.parallel.tensor.regather import Regathered

State = Mapping[str, torch.Tensor]


class ShardedLinear(nn.Module):
    """The common base: this rank's part of the weight, (n, k) cut along dim `cut`, and of the bias.

    `cuts` maps each cut parameter to the dim of the cut; other parameters are whole on every rank.
    `comm` is the tensor-parallel axis. `checked`: its ranks are known to have the same layer, else
    the first forward checks it."""

    def __init__(
        self,
        comm: Comm,
        inputs: int,
        outputs: int,
        bias: bool,
        cut: int,
        all_reduce: str,
        sequence_parallel: bool,
    ):
        super().__init__()
        check_counts(inputs=inputs, outputs=outputs)
        all_reduce_called(all_reduce)  # raises for an unknown name
        name, divided = ("inputs", inputs) if cut else ("outputs", outputs)
        check_divides(name, divided, comm.size, f"the weight's {'columns' if cut else 'rows'}")
        self.comm, self.inputs, self.outputs = comm, inputs, outputs
        self.all_reduce, self.sequence_parallel = all_reduce, sequence_parallel
        self.product = Product(comm, cut)
        self.cuts = {"weight": 1} if cut else {"weight": 0, "bias": 0}
        shape = [outputs, inputs]
        shape[cut] //= comm.size  # (n/t, k) column-parallel, (n, k/t) row-parallel
        self.weight = cut_parameter(comm, torch.empty(shape))
        whole = nn.Parameter(torch.empty(outputs))
        self.bias = (whole if cut else cut_parameter(comm, torch.empty(shape[0]))) if bias else None
        self.checked = False
        self.reset_parameters()

    @property
    def name(self) -> str:
        """The layer's name in the Trace."""
        return self.product.layer

    @name.setter
    def name(self, name: str) -> None:
        self.product.layer = name

    def extra_repr(self) -> str:
        how = f"all_reduce={self.all_reduce}, sequence_parallel={self.sequence_parallel}"
        return f"{self.inputs}, {self.outputs}, bias={self.bias is not None}, {how}"

    def local(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        """The local tensor of a whole parameter."""
        cut = self.cuts.get(name)
        return whole if cut is None else whole.chunk(self.comm.size, cut)[self.comm.rank]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all that `nn.Linear` draws from torch's generator and take this rank's part: seeded
        alike, the ranks hold parts of one layer, which is drawn row by row."""
        by_rows, first = self.cuts["weight"] == 0, self.comm.rank * len(self.weight)
        row = self.weight.new_empty(1, self.inputs)
        for number in range(self.outputs):  # others' rows too: the generators stay alike
            nn.init.kaiming_uniform_(row, a=5**0.5)  # as nn.Linear: ±1/√k, k of the whole layer
            if not by_rows:
                self.weight[number] = self.local("weight", row)[0]
            elif 0 <= number - first < len(self.weight):
                self.weight[number - first] = row[0]
        if self.bias is not None:
            bound = self.inputs**-0.5  # not of the part's k/t columns, which would be wider
            bias = self.bias.new_empty(self.outputs).uniform_(-bound, bound)
            self.bias.copy_(self.local("bias", bias))

    @torch.no_grad()
    def load(self, state: State) -> None:
        """Take this rank's part of the whole layer's `weight` (n, k) and `bias` (n,). Raises
        ValueError for other names or shapes, and, on all ranks, where they are given different
        values."""
        own, layer = dict(self.named_parameters()), self.name or type(self).__name__
        check_names(layer, state, own)
        shapes = {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}
        for name, whole in state.items():
            check_shape(f"{name} of {layer}", whole, shapes[name])
        advice = "load the same weights on every rank of the axis"
        check_replicas(self.comm, f"weights for {layer}", dict(state), advice)
        for name, whole in state.items():
            own[name].copy_(self.local(name, whole))

    def check(self, replicas: dict[str, torch.Tensor], alike: str = "") -> None:
        """At the first forward: raise ValueError, naming two ranks, unless all have this layer, the
        same `alike`, and the same values in its `replicas`."""
        if not self.checked:
            advice = "give every rank of the axis the same model, seeded alike, and the same input"
            layer = self.name or type(self).__name__
            about = f"{layer} ({self.extra_repr()}){alike}"
            check_replicas(self.comm, f"models or inputs at {layer}", replicas, advice, about)
        self.checked = True


def load_layers(module: nn.Module, state: State) -> None:
    """Load each layer of `module` with its part of the whole module's `state`, by the beginning of
    the names. Raises ValueError for a name of no layer."""
    layers = {n: each for n, each in module.named_children() if isinstance(each, ShardedLinear)}
    strange = [name for name in state if name.partition(".")[0] not in layers]
    if strange:
        raise ValueError(
            f"the state holds {strange[0]}, of no layer of {type(module).__name__}: its layers are "
            f"{', '.join(layers)}."
        )
    for name, layer in layers.items():
        begin = f"{name}."
        layer.load({n.removeprefix(begin): v for n, v in state.items() if n.startswith(begin)})


class ColumnParallelLinear(ShardedLinear):
    """y = x Wᵀ + b, of which rank r computes the r-th part of the columns: (B, k) -> (B, n/t), or
    (B, n) with `gather`. x, whole on all ranks, may have more leading dims. With
    `sequence_parallel` each rank has its tokens of x: (B, s/t, k) -> (B, s, n/t).

    Cost: nothing forward; backward one all-reduce of x's gradient (f). With `gather` also one
    all-gather forward: each rank sends (t-1)/t of y's bytes. With `sequence_parallel` an all-gather
    forward, and backward another (regather.py) and a reduce-scatter, of x's bytes each.
    """

    def __init__(
        self,
        comm: Comm,
        inputs: int,
        outputs: int,
        bias: bool = True,
        gather: bool = False,
        *,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__(comm, inputs, outputs, bias, 0, all_reduce, sequence_parallel)
        self.gather = gather

    def enter(self, x: torch.Tensor) -> Entered:
        """f, before the product of this layer, or of several on the same input."""
        if self.sequence_parallel and self.comm.size > 1:
            self.check({}, f" for {tuple(x.shape)}")  # tokens differ by rank, shapes do not
            whole = gather_sequence(self.comm, x, self.all_reduce, self.name)  # (B, s, k)
            return Entered(whole, Regathered(x, self.comm, self.all_reduce, self.name).linear)
        self.check({"x": x})  # f sums the ranks' gradients of one x
        return Entered(f(self.comm, x, self.all_reduce, self.name))

    def forward(self, x: torch.Tensor | Entered) -> torch.Tensor:
        """x, or what `enter` of this layer or of one on the same input returned."""
        whole, linear = x if isinstance(x, Entered) else self.enter(x)  # (B, k)
        y = self.product(whole, self.weight, self.bias, linear)  # (B, n/t)
        return gather_outputs(self.comm, y, self.all_reduce, self.name) if self.gather else y


class RowParallelLinear(ShardedLinear):
    """y = x Wᵀ + b, to which rank r adds the product of the r-th part of the columns of x: (B, k/t)
    -> (B, n) on all ranks. x may have more leading dims. With `sequence_parallel` each rank gets
    its tokens of y: (B, s, k/t) -> (B, s/t, n), and a partial sum of the bias's gradient.

    Cost: forward one all-reduce of y (g); nothing backward. With `sequence_parallel` a
    reduce-scatter forward and an all-gather backward, of y's bytes.
    """

    def __init__(
        self,
        comm: Comm,
        inputs: int,
        outputs: int,
        bias: bool = True,
        *,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__(comm, inputs, outputs, bias, 1, all_reduce, sequence_parallel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.check({} if self.bias is None else {"bias": self.bias})
        y = self.product(x, self.weight)  # (B, n), a partial sum: x is (B, k/t)
        leave = scatter_sequence if self.sequence_parallel else g
        y = leave(self.comm, y, self.all_reduce, self.name)  # (B, n)
        return y if self.bias is None else y + self.bias  # once: not in the partial sums
