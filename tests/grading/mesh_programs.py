"""A training step on a mesh as students write it, right and wrong, and what runs many of them on
the same ranks. Every rank loads this file."""

from __future__ import annotations

import torch
import torch.distributed

from dlviz.collectives import all_reduce
from dlviz.grading.assignments.mesh_3d.run import STEPS, stepped
from dlviz.parallel.naive import average_gradients
from dlviz.parallel.tensor.conjugate import f, g


class Step:
    """As the solution, in parts that a wrong one may replace. Called, it takes a step."""

    def __new__(cls, comm, mesh, part, tokens, targets):
        self = object.__new__(cls)
        self.comm, self.mesh, self.part = comm, mesh, part
        self.first, self.last = mesh.pp.rank == 0, mesh.pp.rank == mesh.pp.size - 1
        return self.step(tokens, targets)

    def step(self, tokens, targets):
        loss = self.there_and_back(tokens, targets)
        self.embedding()
        self.average()
        return self.loss(loss)

    def there_and_back(self, tokens, targets):
        x = self.part.embed(tokens) if self.first else self.arrive()
        y = self.layers(x)
        loss = torch.zeros(1, dtype=torch.float64)
        if self.last:
            loss = self.divided(self.part.loss(y, targets), targets)
            loss.backward()
        else:
            self.hand_on(y)
            gradient = self.part.empty()
            self.gradient_arrives(gradient)
            y.backward(gradient)
        if not self.first:
            self.gradient_back(x.grad)
        return loss.detach().reshape(1)

    def arrive(self):
        x = self.part.empty()
        self.receive(x)
        return x.requires_grad_()

    def receive(self, x):
        self.mesh.pp.recv(x, self.mesh.pp.rank - 1)

    def layers(self, x):
        for block in self.part.blocks:
            x = x + self.g(block(self.f(x)))
        return x

    def f(self, x):
        return f(self.mesh.tp, x)

    def g(self, share):
        return g(self.mesh.tp, share)

    def divided(self, total, targets):
        return total / targets.numel()

    def hand_on(self, y):
        self.mesh.pp.send(y.detach(), self.mesh.pp.rank + 1)

    def gradient_arrives(self, gradient):
        self.mesh.pp.recv(gradient, self.mesh.pp.rank + 1)

    def gradient_back(self, gradient):
        self.mesh.pp.send(gradient, self.mesh.pp.rank - 1)

    def embedding(self):
        all_reduce(self.mesh.pp, self.part.embedding.grad)

    def average(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.dp, p.grad)
            p.grad /= self.mesh.dp.size

    def loss(self, loss):
        all_reduce(self.mesh.pp, loss)
        all_reduce(self.mesh.dp, loss)
        return loss / self.mesh.dp.size


# -- right programs --------------------------------------------------------------------------------


class ByBackend(Step):
    """The collectives of comm, the loss over all ranks at once."""

    def embedding(self):
        self.mesh.pp.all_reduce(self.part.embedding.grad)

    def average(self):
        for p in self.part.parameters():
            self.mesh.dp.all_reduce(p.grad)
            p.grad /= self.mesh.dp.size

    def loss(self, loss):
        self.comm.all_reduce(loss)
        return float(loss) / self.mesh.dp.size / self.mesh.tp.size


class SumsOverReplicas(Step):
    """The loss is divided by the tokens of all replicas, and the gradients are added."""

    def divided(self, total, targets):
        return total / targets.numel() / self.mesh.dp.size

    def average(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.dp, p.grad)

    def loss(self, loss):
        all_reduce(self.mesh.dp, loss)
        self.mesh.pp.broadcast(loss, self.mesh.pp.size - 1)
        return loss


class InOneBucket(Step):
    """The replicas average one flat tensor, and after that the stages add the embedding's."""

    def step(self, tokens, targets):
        loss = self.there_and_back(tokens, targets)
        self.average()
        self.embedding()
        return self.loss(loss)

    def average(self):
        parameters = [*self.part.parameters()]
        flat = torch.cat([p.grad.flatten() for p in parameters])
        all_reduce(self.mesh.dp, flat)
        lengths = [p.numel() for p in parameters]
        for p, mean in zip(parameters, (flat / self.mesh.dp.size).split(lengths), strict=True):
            p.grad = mean.view_as(p)


class ByNumbersOfAllRanks(Step):
    """Neighbours by their numbers in comm, and isend."""

    def receive(self, x):
        self.comm.recv(x, self.comm.rank - self.mesh.tp.size)

    def hand_on(self, y):
        self.comm.isend(y.detach(), self.comm.rank + self.mesh.tp.size).wait()

    def gradient_arrives(self, gradient):
        self.comm.irecv(gradient, self.comm.rank + self.mesh.tp.size).wait()

    def gradient_back(self, gradient):
        self.comm.send(gradient, self.comm.rank - self.mesh.tp.size)


class ToThePartner(Step):
    """f and g by messages of its own: the whole tensor to each of the others."""

    def f(self, x):
        return Exchanged.apply(x, self.mesh.tp, False)

    def g(self, share):
        return Exchanged.apply(share, self.mesh.tp, True)


class Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp, there):
        ctx.tp, ctx.there = tp, there
        return summed(tp, x) if there else x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient if ctx.there else summed(ctx.tp, gradient), None, None


def summed(tp, tensor):
    total, arriving = tensor.clone(), torch.empty_like(tensor)
    others = [rank for rank in range(tp.size) if rank != tp.rank]
    sends = [tp.isend(tensor, rank) for rank in others]
    for rank in others:
        tp.recv(arriving, rank)
        total += arriving
    for send in sends:
        send.wait()
    return total


RIGHT = (Step, ByBackend, SumsOverReplicas, InOneBucket, ByNumbersOfAllRanks, ToThePartner)


# -- wrong programs --------------------------------------------------------------------------------


class OverAllRanks(Step):
    def average(self):
        for p in self.part.parameters():
            all_reduce(self.comm, p.grad)
            p.grad /= self.comm.size


class OverTpToo(Step):
    def average(self):
        super().average()
        for p in self.part.parameters():
            all_reduce(self.mesh.tp, p.grad)
            p.grad /= self.mesh.tp.size


class OverPpInsteadOfDp(Step):
    def average(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.pp, p.grad)
            p.grad /= self.mesh.pp.size


class AcrossReplicas(Step):
    """The other stage, of the other replica."""

    def other(self):
        return self.at(1 - self.mesh.dp.rank, self.mesh.tp.rank)

    def at(self, d, t):
        return (d * self.mesh.pp.size + 1 - self.mesh.pp.rank) * self.mesh.tp.size + t

    def receive(self, x):
        self.comm.recv(x, self.other())

    def hand_on(self, y):
        self.comm.send(y.detach(), self.other())

    def gradient_arrives(self, gradient):
        self.comm.recv(gradient, self.other())

    def gradient_back(self, gradient):
        self.comm.send(gradient, self.other())


class AcrossTp(AcrossReplicas):
    """To the stage behind, on another number of tp, which has the same x."""

    def other(self):
        return self.at(self.mesh.dp.rank, (self.mesh.tp.rank + 1) % self.mesh.tp.size)


class NextRank(Step):
    """rank + 1 and rank - 1 of comm: those are on tp."""

    def receive(self, x):
        self.comm.recv(x, self.comm.rank - 1)

    def hand_on(self, y):
        self.comm.send(y.detach(), self.comm.rank + 1)

    def gradient_arrives(self, gradient):
        self.comm.recv(gradient, self.comm.rank + 1)

    def gradient_back(self, gradient):
        self.comm.send(gradient, self.comm.rank - 1)


class ForgetsTheTie(Step):
    def embedding(self):
        pass


class AveragesTheTie(Step):
    def embedding(self):
        super().embedding()
        self.part.embedding.grad /= self.mesh.pp.size


class SumsAllOverPp(Step):
    """Every gradient is added over the stages, as if they had the same blocks."""

    def embedding(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.pp, p.grad)


class DividesTwice(Step):
    """The loss by the tokens of all replicas, and then the mean of the gradients."""

    def divided(self, total, targets):
        return total / targets.numel() / self.mesh.dp.size


class NeverDivides(Step):
    def divided(self, total, targets):
        return total


class SumsTheGradients(Step):
    def average(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.dp, p.grad)


class WithoutAverage(Step):
    def average(self):
        pass


class WithoutF(Step):
    def f(self, x):
        return x


class WithoutG(Step):
    def g(self, share):
        return share


class OnTheWrongAxis(Step):
    """f and g on dp."""

    def f(self, x):
        return f(self.mesh.dp, x)

    def g(self, share):
        return g(self.mesh.dp, share)


class LossOfTheReplica(Step):
    def loss(self, loss):
        all_reduce(self.mesh.pp, loss)
        return loss


class LossOnTheLastStage(Step):
    def loss(self, loss):
        all_reduce(self.mesh.dp, loss)
        return loss / self.mesh.dp.size


class LossOverPpToo(Step):
    def loss(self, loss):
        return super().loss(loss) / self.mesh.pp.size


class ReturnsNothing(Step):
    def loss(self, loss):
        super().loss(loss)


class EmbeddingOfTheReplica(Step):
    """The embedding is left out of the mean over the replicas."""

    def average(self):
        for p in self.part.blocks.parameters():
            all_reduce(self.mesh.dp, p.grad)
            p.grad /= self.mesh.dp.size


class DividesByAllRanks(Step):
    """The sum over the replicas, by the number of all ranks."""

    def average(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.dp, p.grad)
            p.grad /= self.comm.size


class SumsACopy(Step):
    def average(self):
        for p in self.part.parameters():
            all_reduce(self.mesh.dp, p.grad.clone())
            p.grad /= self.mesh.dp.size


class LossPerRow(Step):
    def divided(self, total, targets):
        return total / len(targets)


class LossPerToken(Step):
    """Of one row."""

    def divided(self, total, targets):
        return total / targets.shape[1]


class ResidualInTheSum(Step):
    def layers(self, x):
        for block in self.part.blocks:
            x = self.g(x + block(self.f(x)))
        return x


class FRoundTheResidual(Step):
    def layers(self, x):
        for block in self.part.blocks:
            x = self.f(x)
            x = x + self.g(block(x))
        return x


class ForgetsTheResidual(Step):
    def layers(self, x):
        for block in self.part.blocks:
            x = self.g(block(self.f(x)))
        return x


class SwapsFAndG(Step):
    def f(self, x):
        return g(self.mesh.tp, x)

    def g(self, share):
        return f(self.mesh.tp, share)


class NothingOverTp(Step):
    def f(self, x):
        return x

    def g(self, share):
        return share


class SendsXBack(Step):
    def there_and_back(self, tokens, targets):
        self.x = None
        return super().there_and_back(tokens, targets)

    def arrive(self):
        self.x = super().arrive()
        return self.x

    def gradient_back(self, gradient):
        super().gradient_back(self.x.detach())


class HandsOnX(Step):
    """What the blocks got, not what they made."""

    def layers(self, x):
        self.x = x
        return super().layers(x)

    def hand_on(self, y):
        super().hand_on(self.x)


class EmbeddingOverTpToo(Step):
    def embedding(self):
        super().embedding()
        all_reduce(self.mesh.tp, self.part.embedding.grad)


class AddsGradientsUp(Step):
    """The gradients of the step before are still there."""

    kept: dict = {}

    def average(self):
        super().average()
        for i, p in enumerate(self.part.parameters()):
            p.grad += self.kept.get((id(self.part), i), torch.zeros_like(p.grad))
            self.kept[id(self.part), i] = p.grad.clone()


class InFloat32(Step):
    def divided(self, total, targets):
        return (total.float() / targets.numel()).double()

    def layers(self, x):
        return super().layers(x).float().double()


class HalfOfTheReplicas(Step):
    """The gradients of two replicas by hand, of which the other's counts twice."""

    def average(self):
        for p in self.part.parameters():
            own = p.grad.clone()
            all_reduce(self.mesh.dp, p.grad)
            p.grad.copy_((2 * p.grad - own) / 3)


class SendsTwice(Step):
    def hand_on(self, y):
        self.mesh.pp.isend(y.detach(), self.mesh.pp.rank + 1, tag=1)
        super().hand_on(y)

    def receive(self, x):
        self.mesh.pp.recv(x, self.mesh.pp.rank - 1, tag=1)
        super().receive(x)


# -- without a result ------------------------------------------------------------------------------


class ByTorch(Step):
    def average(self):
        for p in self.part.parameters():
            torch.distributed.all_reduce(p.grad)


class OfTheLibrary(Step):
    def average(self):
        average_gradients(self.mesh.dp, self.part)


class HidesErrors(Step):
    def embedding(self):
        try:
            self.mesh.pp.send(self.part.embedding.grad, 5)
        except:  # noqa: E722
            pass
        super().embedding()


class ReceivesFirst(Step):
    """Both stages wait for a message."""

    def hand_on(self, y):
        self.gradient_arrives(self.part.empty())


class SendsBehindTheLast(Step):
    """The last stage hands on too."""

    def divided(self, total, targets):
        self.mesh.pp.send(total.detach(), self.mesh.pp.rank + 1)
        return super().divided(total, targets)


class AnotherShape(Step):
    def hand_on(self, y):
        super().hand_on(y[0])


class NoLeaf(Step):
    """What arrives has no gradient of its own."""

    def arrive(self):
        x = self.part.empty()
        self.receive(x)
        return x


class NotWritten(Step):
    def step(self, tokens, targets):
        raise NotImplementedError()


# -- groups ----------------------------------------------------------------------------------------


def groups(rank, sizes):
    """The solution's."""
    found, distance = {}, 1
    for axis, length in reversed(sizes.items()):
        here = rank // distance % length
        start = rank - here * distance
        found[axis] = [start + i * distance for i in range(length)]
        distance *= length
    return found


def groups_by_places(rank, sizes):
    """All places, and of these those that differ on one axis alone."""
    places = [()]
    for length in sizes.values():
        places = [(*place, i) for place in places for i in range(length)]
    own = places[rank]
    return {
        axis: tuple(
            r
            for r, place in enumerate(places)
            if all(a == b for i, (a, b) in enumerate(zip(place, own, strict=True)) if i != k)
        )
        for k, axis in enumerate(sizes)
    }


def groups_by_torch(rank, sizes):
    ranks = torch.arange(torch.tensor([*sizes.values()]).prod()).view(*sizes.values())
    place = (ranks == rank).nonzero()[0]
    found = {}
    for k, axis in enumerate(sizes):
        index = [slice(None) if i == k else at for i, at in enumerate(place)]
        found[axis] = ranks[tuple(index)]
    return found


def first_axis_fastest(rank, sizes):
    found, distance = {}, 1
    for axis, length in sizes.items():
        start = rank - rank // distance % length * distance
        found[axis] = [start + i * distance for i in range(length)]
        distance *= length
    return found


def distance_off_by_one(rank, sizes):
    """The lengths behind, and its own too."""
    found, distance = {}, 1
    for axis, length in reversed(sizes.items()):
        distance *= length
        found[axis] = [rank % distance + i * distance for i in range(length)]
    return found


def starts_with_itself(rank, sizes):
    """A group begins with the rank that asks."""
    found, distance = {}, 1
    for axis, length in reversed(sizes.items()):
        found[axis] = [rank + i * distance for i in range(length)]
        distance *= length
    return found


def always_dp_pp_tp(rank, sizes):
    """The order of the axes is fixed."""
    return groups(rank, {axis: sizes[axis] for axis in ("dp", "pp", "tp")})


def places(rank, sizes):
    """Numbers on the axis, not of ranks."""
    return {axis: list(range(length)) for axis, length in sizes.items()}


def of_rank_0(rank, sizes):
    return groups(0, sizes)


def itself_alone(rank, sizes):
    return {axis: [rank] for axis in sizes}


def same_place(rank, sizes):
    """The ranks with the same number on the axis."""
    ranks = torch.arange(torch.tensor([*sizes.values()]).prod()).view(*sizes.values())
    place = (ranks == rank).nonzero()[0].tolist()
    return {axis: ranks.select(k, place[k]).flatten() for k, axis in enumerate(sizes)}


def swapped_axes(rank, sizes):
    found = groups(rank, sizes)
    return {**found, "dp": found["pp"], "pp": found["dp"]}


def one_list(rank, sizes):
    return groups(rank, sizes)["tp"]


def without_itself(rank, sizes):
    return {axis: [r for r in each if r != rank] for axis, each in groups(rank, sizes).items()}


def twos(rank, sizes):
    """By bits of the rank."""
    return {
        axis: sorted({rank, rank ^ (1 << k)}) if sizes[axis] > 1 else [rank]
        for k, axis in enumerate(reversed(sizes))
    }


RIGHT_GROUPS = (groups, groups_by_places, groups_by_torch)


# -- plans -----------------------------------------------------------------------------------------


def choose(table, memory):
    """The solution's."""
    fitting = [row for row in table if row["memory"] <= memory]
    return min(fitting, key=lambda row: row["seconds"])


def choose_in_order(table, memory):
    rows = sorted(table, key=lambda row: row["seconds"])
    return next(row for row in rows if not row["memory"] > memory)


def choose_by_loop(table, memory):
    """Without recomputation and with names alone, where that is within 5 %."""
    best = None
    for row in table:
        if row["memory"] <= memory and (best is None or row["seconds"] < best["seconds"]):
            best = row
    near = [r for r in table if r["memory"] <= memory and r["seconds"] < 1.04 * best["seconds"]]
    return dict(min(near, key=lambda row: row["memory"]))


def fastest(table, memory):
    return min(table, key=lambda row: row["seconds"])


def by_the_column_fits(table, memory):
    return min((row for row in table if row["fits"]), key=lambda row: row["seconds"])


def least_memory(table, memory):
    return min(table, key=lambda row: row["memory"])


def smallest_bubble(table, memory):
    return min((row for row in table if row["memory"] <= memory), key=lambda row: row["bubble"])


def slowest(table, memory):
    return max((row for row in table if row["memory"] <= memory), key=lambda row: row["seconds"])


def most_memory(table, memory):
    return max((row for row in table if row["memory"] <= memory), key=lambda row: row["memory"])


def least_compute(table, memory):
    fitting = [row for row in table if row["memory"] <= memory]
    return min(fitting, key=lambda row: row["compute_seconds"])


def in_gib(table, memory):
    fitting = [row for row in table if row["memory"] <= memory / 1e9 * 2**30]
    return min(fitting, key=lambda row: row["seconds"])


def below_the_limit(table, memory):
    """Without the plan that needs just the limit."""
    return min((row for row in table if row["memory"] < memory), key=lambda row: row["seconds"])


def place_of_the_row(table, memory):
    return table.index(choose(table, memory))


def of_all_ranks(table, memory):
    """The limit is taken as that of all devices together."""
    fitting = [r for r in table if r["memory"] * r["dp"] * r["pp"] * r["tp"] <= memory]
    return min(fitting, key=lambda row: row["seconds"])


RIGHT_CHOICES = (choose, choose_in_order, choose_by_loop)


# -- many of them in one run -----------------------------------------------------------------------


def in_turn(comm, programs, axes, widths, dealt):
    """Each program on a Comm of its own, with steps of its own in the Trace."""
    left = []
    for number, given in enumerate(programs):
        comm.barrier()
        alone = comm.split(0)
        left.append(stepped(alone, given, axes, widths, dealt[number], STEPS * number))
    return left


def groups_of_meshes(comm, meshes):
    """What comm.mesh says of this rank."""
    return [{axis: [*getattr(comm.split(0).mesh(**axes), axis).members] for axis in axes}
            for axes in meshes]  # fmt: skip
