"""A tensor-parallel MLP as students write it, right and wrong: f and g, and modules; and what runs
many of them on the same ranks. Every rank loads this file."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.functional import gelu, linear

from dlviz.collectives import all_reduce, butterfly
from dlviz.collectives import ring as library_ring
from dlviz.grading.assignments.tensor_parallel_mlp.run import passed, trained
from dlviz.parallel.tensor import ParallelMLP, conjugate

# -- f and g ---------------------------------------------------------------------------------------


def keep(comm, tensor):
    return tensor


def add(comm, tensor):
    total = tensor.clone()
    all_reduce(comm, total)
    return total


def pair(f_there=keep, f_back=add, g_there=add, g_back=keep):
    """f and g of what they do on the way there and back."""

    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return f_there(comm, x)

        @staticmethod
        def backward(ctx, gradient):
            return f_back(ctx.comm, gradient), None

    class SumOverRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return g_there(comm, x)

        @staticmethod
        def backward(ctx, gradient):
            return g_back(ctx.comm, gradient), None

    return CopyToRanks, SumOverRanks


def ring(comm, tensor):
    """An all-reduce of one's own, of isend and recv."""
    total, n = tensor.clone(), comm.size
    chunks = total.view(-1).tensor_split(n)
    for turn in range(2 * (n - 1)):
        mine = chunks[(comm.rank - turn - 1) % n]
        sending = comm.isend(chunks[(comm.rank - turn) % n], (comm.rank + 1) % n)
        arriving = torch.empty_like(mine)
        comm.recv(arriving, (comm.rank - 1) % n)
        sending.wait()
        mine.copy_(mine + arriving if turn < n - 1 else arriving)
    return total


def by_backend(comm, tensor):
    total = tensor.clone()
    comm.all_reduce(total)
    return total


def in_halves(comm, tensor):
    total = tensor.clone()
    library_ring.reduce_scatter(comm, total)
    library_ring.all_gather(comm, total)
    return total


def twice(comm, tensor):
    return add(comm, add(comm, tensor))


def mean(comm, tensor):
    return add(comm, tensor) / comm.size


def times_ranks(comm, tensor):
    return tensor * comm.size


def in_place(comm, tensor):
    all_reduce(comm, tensor)
    return tensor


def in_float32(comm, tensor):
    return add(comm, tensor.float()).double()


def forgets_the_sum(comm, tensor):
    add(comm, tensor)
    return tensor


def returns_nothing(comm, tensor):
    add(comm, tensor)


def gathers(comm, tensor):
    parts = [torch.empty_like(tensor) for _ in range(comm.size)]
    comm.all_gather(parts, tensor)
    return torch.stack(parts).sum(0)


def to_everybody(comm, tensor):
    """The whole tensor to all the others, as messages."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    sends = [comm.isend(tensor, rank) for rank in others]
    total, arriving = tensor.clone(), torch.empty_like(tensor)
    for rank in others:
        comm.recv(arriving, rank)
        total += arriving
    for send in sends:
        send.wait()
    return total


def through_rank_0(comm, tensor):
    total = tensor.clone()
    if comm.rank:
        comm.send(total, 0)
        comm.recv(total, 0)
        return total
    for rank in range(1, comm.size):
        arriving = torch.empty_like(total)
        comm.recv(arriving, rank)
        total += arriving
    for rank in range(1, comm.size):
        comm.send(total, rank)
    return total


def to_one_and_to_all(comm, tensor):
    total = tensor.clone()
    comm.reduce(total, 0)
    comm.broadcast(total, 0)
    return total


def with_the_left(comm, tensor):
    arriving = torch.empty_like(tensor)
    comm.sendrecv(tensor, (comm.rank + 1) % comm.size, arriving, (comm.rank - 1) % comm.size)
    return tensor + arriving


def with_the_partner(comm, tensor):
    """A butterfly, whose partners are there where the ranks are a power of two."""
    total, bit = tensor.clone(), 1
    while bit < comm.size:
        arriving = torch.empty_like(total)
        comm.sendrecv(total.clone(), comm.rank ^ bit, arriving, comm.rank ^ bit)
        total += arriving
        bit *= 2
    return total


def in_equal_chunks(comm, tensor):
    tensor.reshape(comm.size, -1)
    return add(comm, tensor)


def by_torch(comm, tensor):
    total = tensor.clone()
    torch.distributed.all_reduce(total)
    return total


def by_butterfly(comm, tensor):
    total = tensor.clone()
    butterfly.all_reduce(comm, total)
    return total


def by_tree(comm, tensor):
    total = tensor.clone()
    all_reduce(comm, total, "tree")
    return total


def sends_first(comm, tensor):
    comm.send(tensor, (comm.rank + 1) % comm.size)
    comm.recv(torch.empty_like(tensor), (comm.rank - 1) % comm.size)
    return tensor


def not_on_the_last(comm, tensor):
    return tensor if comm.rank == comm.size - 1 else add(comm, tensor)


def hides_errors(comm, tensor):
    try:
        comm.send(tensor, comm.size)
    except:  # noqa: E722
        pass
    return add(comm, tensor)


def exits(comm, tensor):
    sys.exit()


def not_written(comm, tensor):
    raise NotImplementedError()


def never_ends(comm, tensor):
    while True:
        try:
            time.sleep(0.01)
        except:  # noqa: E722
            pass


class WithoutComm(torch.autograd.Function):
    """Its backward returns a gradient too few."""

    @staticmethod
    def forward(ctx, x, comm):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class WithoutArgument(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


# -- right modules ---------------------------------------------------------------------------------


class MLP(nn.Module):
    """As the solution, in parts that a wrong one may replace."""

    f, g = pair()

    def __init__(self, comm, state):
        super().__init__()
        self.comm = comm
        for name, tensor in self.cut(state, comm.rank, comm.size).items():
            self.register_parameter(name, nn.Parameter(tensor))

    def cut(self, state, r, n):
        own = self.rows_of(len(state["up.bias"]), r, n)
        return {
            "up_weight": state["up.weight"][own].clone(),
            "up_bias": state["up.bias"][own].clone(),
            "down_weight": state["down.weight"][:, own].clone(),
            "down_bias": state["down.bias"],
        }

    def rows_of(self, inner, r, n):
        return slice(r * inner // n, (r + 1) * inner // n)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))

    def up(self, x):
        return linear(self.f.apply(x, self.comm), self.up_weight, self.up_bias)

    def activation(self, inner):
        return gelu(inner)

    def down(self, inner):
        return self.g.apply(linear(inner, self.down_weight), self.comm) + self.down_bias


class OfLayers(nn.Module):
    """Two nn.Linear, whose parameters are up.weight and so on."""

    def __init__(self, comm, state):
        super().__init__()
        self.comm, self.act = comm, nn.GELU()
        inner, hidden = state["up.weight"].shape
        self.up = nn.Linear(hidden, inner // comm.size).double()
        self.down = nn.Linear(inner // comm.size, hidden).double()
        parts = {
            "up.weight": state["up.weight"].chunk(comm.size)[comm.rank],
            "up.bias": state["up.bias"].chunk(comm.size)[comm.rank],
            "down.weight": state["down.weight"].chunk(comm.size, dim=1)[comm.rank],
            "down.bias": state["down.bias"],
        }
        self.load_state_dict(parts)  # which copies

    def forward(self, x):
        f, g = MLP.f, MLP.g
        inner = self.act(self.up(f.apply(x, self.comm)))
        return g.apply(inner @ self.down.weight.T, self.comm) + self.down.bias


class ByRing(MLP):
    f, g = pair(f_back=ring, g_there=ring)


class ByBackend(MLP):
    f, g = pair(f_back=by_backend, g_there=by_backend)


class InHalves(MLP):
    f, g = pair(f_back=in_halves, g_there=in_halves)


class ByHooks(MLP):
    """No Function at all: a hook on x, and a sum that autograd does not see."""

    def up(self, x):
        x = x.view_as(x)
        x.register_hook(lambda gradient: add(self.comm, gradient))
        return linear(x, self.up_weight, self.up_bias)

    def down(self, inner):
        y = linear(inner, self.down_weight)
        all_reduce(self.comm, y.detach())
        return y + self.down_bias


class Whole(torch.autograd.Function):
    """The MLP of a rank forwards and backwards, by hand."""

    @staticmethod
    def forward(ctx, x, up, up_bias, down, down_bias, comm):
        inner = x @ up.T + up_bias  # (B, i/n)
        ctx.save_for_backward(x, up, down, inner)
        ctx.comm = comm
        return add(comm, gelu(inner) @ down.T) + down_bias  # (B, h)

    @staticmethod
    def backward(ctx, gradient):
        x, up, down, inner = ctx.saved_tensors
        density = torch.exp(-inner * inner / 2) / (2 * torch.pi) ** 0.5
        slope = (1 + torch.erf(inner / 2**0.5)) / 2 + inner * density
        back = (gradient @ down) * slope  # (B, i/n)
        x_back = add(ctx.comm, back @ up)  # (B, h)
        return x_back, back.T @ x, back.sum(0), gradient.T @ gelu(inner), gradient.sum(0), None


class ByHand(MLP):
    def forward(self, x):
        return Whole.apply(x, *self.parameters(), self.comm)


RIGHT = [MLP, OfLayers, ByRing, ByBackend, InHalves, ByHooks, ByHand]
RIGHT_PAIRS = {
    "all_reduce": pair(),
    "ring": (ByRing.f, ByRing.g),
    "backend": (ByBackend.f, ByBackend.g),
    "halves": (InHalves.f, InHalves.g),
    "butterfly": pair(f_back=by_butterfly, g_there=by_butterfly),
}

# -- wrong modules ---------------------------------------------------------------------------------


class SumsBeforeGELU(MLP):
    def activation(self, inner):
        return gelu(self.g.apply(inner, self.comm))


class SumsBeforeGELUAlone(SumsBeforeGELU):
    def down(self, inner):
        return linear(inner, self.down_weight, self.down_bias)


class BiasOnEveryRank(MLP):
    def down(self, inner):
        return self.g.apply(linear(inner, self.down_weight, self.down_bias), self.comm)


class PartOfTheBias(MLP):
    def down(self, inner):
        bias = self.down_bias / self.comm.size
        return self.g.apply(linear(inner, self.down_weight, bias), self.comm)


class WithoutBias(MLP):
    def down(self, inner):
        return self.g.apply(linear(inner, self.down_weight), self.comm)


class WithoutBackwardOfF(MLP):
    f, g = pair(f_back=keep)


class SumsBackTwice(MLP):
    """g all-reduces in backward too."""

    f, g = pair(g_back=add)


class SumsXTwice(MLP):
    f, g = pair(f_back=twice)


class WithoutG(MLP):
    f, g = pair(g_there=keep)


class SwappedPair(MLP):
    g, f = pair()


class Means(MLP):
    f, g = pair(f_back=mean, g_there=mean)


class ScalesX(MLP):
    f, g = pair(f_there=times_ranks)


class InFloat32(MLP):
    f, g = pair(f_back=in_float32, g_there=in_float32)


class GathersShares(MLP):
    f, g = pair(f_back=gathers, g_there=gathers)


class ByTree(MLP):
    f, g = pair(f_back=by_tree, g_there=by_tree)


class ToEverybody(MLP):
    f, g = pair(f_back=to_everybody, g_there=to_everybody)


class ForTwoAndFour(MLP):
    f, g = pair(f_back=with_the_partner, g_there=with_the_partner)


class InEqualChunks(MLP):
    f, g = pair(f_back=in_equal_chunks, g_there=in_equal_chunks)


class ThroughRank0(MLP):
    f, g = pair(f_back=through_rank_0, g_there=through_rank_0)


class ByReduceAndBroadcast(MLP):
    f, g = pair(f_back=to_one_and_to_all, g_there=to_one_and_to_all)


class FBehindUp(MLP):
    def up(self, x):
        return self.f.apply(linear(x, self.up_weight, self.up_bias), self.comm)


class FBehindGELU(MLP):
    def up(self, x):
        return linear(x, self.up_weight, self.up_bias)

    def activation(self, inner):
        return self.f.apply(gelu(inner), self.comm)


class FBehindDown(MLP):
    def up(self, x):
        return linear(x, self.up_weight, self.up_bias)

    def down(self, inner):
        share = self.f.apply(linear(inner, self.down_weight), self.comm)
        return self.g.apply(share, self.comm) + self.down_bias


class BackwardsSwapped(MLP):
    f, g = pair(f_back=keep, g_back=add)


class FromTheLeftAlone(MLP):
    """The gradient of x has its own share and the left neighbour's."""

    f, g = pair(f_back=with_the_left)


class WithoutApply(MLP):
    """f is called as a function, with a ctx of its own."""

    def up(self, x):
        x = self.f.forward(SimpleNamespace(), x, self.comm)
        return linear(x, self.up_weight, self.up_bias)

    def down(self, inner):
        y = linear(inner, self.down_weight)
        all_reduce(self.comm, y.detach())
        return y + self.down_bias


class WithoutCtx(MLP):
    def up(self, x):
        return linear(self.f.forward(None, x, self.comm), self.up_weight, self.up_bias)


class CalledAsAClass(MLP):
    def up(self, x):
        return linear(self.f(x, self.comm), self.up_weight, self.up_bias)


class CommInBackward(MLP):
    f, g = pair(f_back=lambda _, gradient: add(comm, gradient))  # noqa: F821


class WholeUpBias(MLP):
    """Cut in forward."""

    def cut(self, state, r, n):
        return {**super().cut(state, r, n), "up_bias": state["up.bias"]}

    def up(self, x):
        own = self.rows_of(len(self.up_bias), self.comm.rank, self.comm.size)
        return linear(self.f.apply(x, self.comm), self.up_weight, self.up_bias[own])


class UpBiasUncut(WholeUpBias):
    """And not cut there."""

    def up(self, x):
        return MLP.up(self, x)


class PartTooLong(MLP):
    def rows_of(self, inner, r, n):
        return slice(r * inner // n, (r + 1) * inner // n + (r == 0))


class Transposed(MLP):
    """Its parameters are those of x W1."""

    def cut(self, state, r, n):
        parts = super().cut(state, r, n)
        turned = {name: part.mT.contiguous() for name, part in parts.items() if part.dim() == 2}
        return {**parts, **turned}

    def up(self, x):
        return self.f.apply(x, self.comm) @ self.up_weight + self.up_bias

    def down(self, inner):
        return self.g.apply(inner @ self.down_weight, self.comm) + self.down_bias


class ByTorch(MLP):
    f, g = pair(f_back=by_torch, g_there=by_torch)


class OfTheLibrary(nn.Module):
    def __init__(self, comm, state):
        super().__init__()
        self.mlp = ParallelMLP(comm, *state["up.weight"].T.shape)
        self.mlp.double().load(state)

    def forward(self, x):
        return self.mlp(x)


class FunctionsOfTheLibrary(MLP):
    def up(self, x):
        return linear(conjugate.f(self.comm, x), self.up_weight, self.up_bias)

    def down(self, inner):
        return conjugate.g(self.comm, linear(inner, self.down_weight)) + self.down_bias


class SendsFirst(MLP):
    f, g = pair(g_there=sends_first)


class NotOnTheLast(MLP):
    f, g = pair(g_there=not_on_the_last)


class HidesErrors(MLP):
    f, g = pair(g_there=hides_errors)


class Exits(MLP):
    f, g = pair(f_there=exits)


class NotWritten(MLP):
    f, g = pair(f_there=not_written)


class NeverEnds(MLP):
    f, g = pair(g_there=never_ends)


class ReturnsNothing(MLP):
    def forward(self, x):
        super().forward(x)


class Detaches(MLP):
    def forward(self, x):
        return super().forward(x).detach()


class AnotherShape(MLP):
    def forward(self, x):
        return super().forward(x)[:, :3]


class WithoutGradientOfComm(MLP):
    f = WithoutComm


class RowsForColumns(MLP):
    """up is cut by its inputs."""

    def cut(self, state, r, n):
        own = self.rows_of(state["up.weight"].shape[1], r, n)
        return {**super().cut(state, r, n), "up_weight": state["up.weight"][:, own].clone()}


class RowsThenColumns(MLP):
    """up row-parallel, down column-parallel: each with a collective of its own."""

    def cut(self, state, r, n):
        own = self.rows_of(state["up.weight"].shape[1], r, n)
        return {
            "up_weight": state["up.weight"][:, own].clone(),
            "up_bias": state["up.bias"],
            "down_weight": state["down.weight"][own].clone(),
            "down_bias": state["down.bias"],
        }

    def up(self, x):
        own = self.rows_of(x.shape[1], self.comm.rank, self.comm.size)
        x = self.f.apply(x, self.comm)[:, own]
        return self.g.apply(linear(x, self.up_weight), self.comm) + self.up_bias

    def down(self, inner):
        share = linear(self.f.apply(inner, self.comm), self.down_weight)
        return Gather.apply(share, self.comm) + self.down_bias


class Gather(torch.autograd.Function):
    """The columns of all ranks; backwards a rank's own."""

    @staticmethod
    def forward(ctx, columns, comm):
        ctx.comm = comm
        parts = [torch.empty_like(columns) for _ in range(comm.size)]
        comm.all_gather(parts, columns.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.chunk(ctx.comm.size, 1)[ctx.comm.rank], None


class InFloat32Parts(MLP):
    """Its parameters are float32."""

    def __init__(self, comm, state):
        super().__init__(comm, state)
        self.float()

    def up(self, x):
        return linear(self.f.apply(x, self.comm), self.up_weight.double(), self.up_bias.double())

    def down(self, inner):
        share = linear(inner, self.down_weight.double())
        return self.g.apply(share, self.comm) + self.down_bias.double()


class EveryNth(MLP):
    def rows_of(self, inner, r, n):
        return slice(r, None, n)


class PartOfTheNext(MLP):
    """Rank r has what rank r+1 should have."""

    def rows_of(self, inner, r, n):
        return super().rows_of(inner, (r + 1) % n, n)


class HoldsTheWhole(MLP):
    def rows_of(self, inner, r, n):
        return slice(None)

    def forward(self, x):
        own = super().rows_of(len(self.up_bias), self.comm.rank, self.comm.size)
        x = self.f.apply(x, self.comm)
        inner = gelu(linear(x, self.up_weight[own], self.up_bias[own]))
        return self.g.apply(linear(inner, self.down_weight[:, own]), self.comm) + self.down_bias


class SlicesAlone(MLP):
    """The parts share the memory of the whole weights."""

    def cut(self, state, r, n):
        own = self.rows_of(len(state["up.bias"]), r, n)
        up, bias, down = state["up.weight"], state["up.bias"], state["down.weight"]
        parts = {"up_weight": up[own], "up_bias": bias[own], "down_weight": down[:, own]}
        return {**parts, "down_bias": state["down.bias"]}


class KeepsTheState(MLP):
    def __init__(self, comm, state):
        super().__init__(comm, state)
        self.state = state


class ComputesItAll(KeepsTheState):
    """Every rank has the whole MLP, and parts for show."""

    def forward(self, x):
        state = self.state
        inner = gelu(linear(x, state["up.weight"], state["up.bias"]))
        return linear(inner, state["down.weight"], state["down.bias"])


class GathersWeights(MLP):
    """The whole weights are gathered for each product."""

    def forward(self, x):
        up = Gather.apply(self.up_weight.T, self.comm).T
        bias = Gather.apply(self.up_bias[None], self.comm)[0]
        down = Gather.apply(self.down_weight, self.comm)
        return linear(gelu(linear(x, up, bias)), down, self.down_bias)


class DrawsItsOwn(MLP):
    def cut(self, state, r, n):
        parts = super().cut(state, r, n)
        return {name: part + 1 for name, part in parts.items()}


class OldWeights(MLP):
    """Computes on copies of its parameters, as they were at the start."""

    def __init__(self, comm, state):
        super().__init__(comm, state)
        self.old = {name: p.detach().clone() for name, p in self.named_parameters()}

    def down(self, inner):
        share = linear(inner, self.old["down_weight"] + 0 * self.down_weight)
        return self.g.apply(share, self.comm) + self.down_bias


class WithoutGELU(MLP):
    def activation(self, inner):
        return inner


class RoughGELU(MLP):
    def activation(self, inner):
        return gelu(inner, approximate="tanh")


class NoParameters(MLP):
    def __init__(self, comm, state):
        super().__init__(comm, state)
        for name in [name for name, _ in self.named_parameters()]:
            part = getattr(self, name).detach()
            delattr(self, name)
            setattr(self, name, part)


class NoModule:
    def __init__(self, comm, state):
        pass


class ChangesX(MLP):
    def forward(self, x):
        y = super().forward(x)
        x.data *= 2
        return y


class LiesWhenCompared(MLP):
    """Its output says of every comparison that it is so."""

    def forward(self, x):
        return super().forward(x).detach().mul(2).as_subclass(Liar).requires_grad_()


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in ("allclose", "equal"):
            return True
        return super().__torch_function__(function, types, args, kwargs or {})


class ChangesTheJudge(ComputesItAll):
    def __init__(self, comm, state):
        super().__init__(comm, state)
        for name, module in [*sys.modules.items()]:
            if name.startswith("dlviz.grading"):
                vars(module).update(same=lambda *tensors: True, check_open=lambda *told: None)


# -- many of them in one run -----------------------------------------------------------------------


def in_turn(comm, programs, size, steps):
    """Each program on a Comm of its own; the barrier keeps their messages apart."""
    left = []
    for number, given in enumerate(programs):
        comm.barrier()
        with comm.span("case", f"{number}"):
            left.append(trained(comm.split(0), given, size, number, steps))
    return left


def functions_in_turn(comm, functions, dealt):
    left = []
    for given, own in zip(functions, dealt, strict=True):
        comm.barrier()
        left.append(passed(comm.split(0), given, own))
    return left
