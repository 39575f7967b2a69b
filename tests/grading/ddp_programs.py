"""DDP's buckets as students write them, right and wrong: functions that cut parameters into
buckets, and classes that average gradients. Every rank loads this file."""

from __future__ import annotations

import sys
import time

import torch

from dlviz.collectives import all_reduce

# -- cutting ---------------------------------------------------------------------------------------


def cut(parameters, most):
    buckets = [[]]
    for p in reversed(parameters):
        if buckets[-1] and sum(q.nbytes for q in buckets[-1]) + p.nbytes > most:
            buckets.append([])
        buckets[-1].append(p)
    return buckets


def cut_by_counting(parameters, most):
    buckets, bucket, held = [], [], 0
    for p in parameters[::-1]:
        size = p.numel() * p.element_size()
        if bucket and held + size > most:
            buckets.append(bucket)
            bucket, held = [], 0
        bucket.append(p)
        held += size
    return [*buckets, bucket]


def cut_forwards(parameters, most):
    return cut([*reversed(parameters)], most)


def cut_without_the_last(parameters, most):
    buckets, bucket, held = [], [], 0
    for p in reversed(parameters):
        if bucket and held + p.nbytes > most:
            buckets.append(bucket)
            bucket, held = [], 0
        bucket.append(p)
        held += p.nbytes
    return buckets


def cut_when_it_is_over(parameters, most):
    buckets, held = [[]], 0
    for p in reversed(parameters):
        if held > most:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += p.nbytes
    return buckets


def cut_with_an_empty_one(parameters, most):
    buckets, held = [[]], 0
    for p in reversed(parameters):
        if held + p.nbytes > most:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += p.nbytes
    return buckets


def cut_by_elements(parameters, most):
    buckets = [[]]
    for p in reversed(parameters):
        if buckets[-1] and sum(q.numel() for q in buckets[-1]) + p.numel() > most:
            buckets.append([])
        buckets[-1].append(p)
    return buckets


def cut_at_an_exact_fit(parameters, most):
    buckets, held = [[]], 0
    for p in reversed(parameters):
        if buckets[-1] and held + p.nbytes >= most:
            buckets.append([])
            held = 0
        buckets[-1].append(p)
        held += p.nbytes
    return buckets


def cut_without_setting_back(parameters, most):
    buckets, held = [[]], 0
    for p in reversed(parameters):
        if buckets[-1] and held + p.nbytes > most:
            buckets.append([])
        buckets[-1].append(p)
        held += p.nbytes
    return buckets


def cut_never_ends_for_a_large_one(parameters, most):
    """It fills a bucket until it is full, though there may be nothing left to fill it with."""
    left, buckets = [*parameters], []
    while left:
        bucket, held = [left.pop()], 0
        while not left or held + bucket[-1].nbytes + left[-1].nbytes <= most:
            held += bucket[-1].nbytes
            if left:
                bucket.append(left.pop())
            elif most < 100:
                break
        buckets.append(bucket)
    return buckets


def cut_one_by_one(parameters, most):
    return [[p] for p in reversed(parameters)]


def cut_not_written(parameters, most):
    raise NotImplementedError()


def cut_sizes(parameters, most):
    return [[p.nbytes for p in bucket] for bucket in cut(parameters, most)]


def cut_by_the_library(parameters, most):
    from dlviz.parallel.buckets import fill_buckets

    model = torch.nn.Module()
    model.all = torch.nn.ParameterList(parameters)
    return [bucket.parameters for bucket in fill_buckets(model, most)]


# -- right ones ------------------------------------------------------------------------------------


class Buckets:
    """As the solution, in parts that a wrong one may replace."""

    def __init__(self, comm, buckets):
        self.comm = comm
        self.lane = comm.lane("comm")
        self.buckets = buckets
        self.bucket_of = {p: i for i, bucket in enumerate(buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self.ready)

    def begin(self, examples, total):
        self.weight = self.weight_of(examples, total)
        self.missing = [len(bucket) for bucket in self.buckets]
        self.flats, self.handles = [], []

    def weight_of(self, examples, total):
        return examples / total

    def ready(self, parameter):
        self.missing[self.bucket_of[parameter]] -= 1
        while len(self.handles) < len(self.buckets) and not self.missing[len(self.handles)]:
            self.launch(len(self.handles))

    def packed(self, bucket):
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        return self.weight * torch.cat([part.flatten() for part in parts])

    def launch(self, number):
        flat = self.packed(self.buckets[number])
        self.flats.append(flat)
        self.handles.append(self.lane.submit(all_reduce, flat))

    def finish(self):
        while len(self.handles) < len(self.buckets):
            self.launch(len(self.handles))
        self.unpack()

    def unpack(self):
        for bucket, flat, handle in zip(self.buckets, self.flats, self.handles, strict=False):
            handle.wait()
            self.give(bucket, flat)

    def give(self, bucket, flat):
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad = part.view_as(p)


class InPlace:
    """Flat tensors that stay, with a place for each gradient; the sum over the examples is divided
    on the lane."""

    def __init__(self, comm, buckets):
        self.lane, self.places, self.flats = comm.lane("gradients"), {}, []
        for number, bucket in enumerate(buckets):
            flat = torch.zeros(sum(p.numel() for p in bucket), dtype=bucket[0].dtype)
            self.flats.append(flat)
            start = 0
            for p in bucket:
                self.places[p] = number, flat[start : start + p.numel()].view_as(p)
                start += p.numel()
                p.register_post_accumulate_grad_hook(self.put)

    def begin(self, examples, total):
        self.examples, self.total = examples, total
        self.open = [{p for p, (n, _) in self.places.items() if n == i} for i in self.numbers]
        self.next = 0
        for flat in self.flats:
            flat.zero_()

    @property
    def numbers(self):
        return range(len(self.flats))

    def put(self, p):
        number, place = self.places[p]
        place.copy_(p.grad).mul_(self.examples)
        self.open[number].remove(p)
        while self.next < len(self.flats) and not self.open[self.next]:
            self.send()

    def send(self):
        self.last = self.lane.submit(self.mean, self.next)
        self.next += 1

    def mean(self, comm, number):
        all_reduce(comm, self.flats[number])
        self.flats[number] /= self.total

    def finish(self):
        while self.next < len(self.flats):
            self.send()
        self.last.wait()  # a lane works in order
        for p, (_, place) in self.places.items():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.copy_(place)


class Closures:
    """A hook for each bucket; what no rank has used keeps None."""

    def __init__(self, comm, buckets):
        self.comm, self.lane, self.buckets = comm, comm.lane("comm"), buckets
        for number, bucket in enumerate(buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, i=number: self.has(p, i))

    def begin(self, examples, total):
        self.share, self.there, self.sent = examples / total, {}, {}

    def has(self, p, i):
        self.there.setdefault(i, []).append(p)
        self.go()

    def go(self, anyway=False):
        for i, bucket in enumerate(self.buckets):
            if i in self.sent:
                continue
            if len(self.there.get(i, [])) < len(bucket) and not anyway:
                return
            grads = [p.grad if p.grad is not None else p.new_zeros(p.shape) for p in bucket]
            flat = torch.cat([g.detach().reshape(-1) for g in grads]).mul_(self.share)
            self.sent[i] = flat, self.lane.submit(lambda comm, flat: all_reduce(comm, flat), flat)

    def finish(self):
        self.go(anyway=True)
        for i, (flat, handle) in self.sent.items():
            handle.wait(bucket=i)
            start = 0
            for p in self.buckets[i]:
                part = flat[start : start + p.numel()].view_as(p)
                start += p.numel()
                if p.grad is not None:
                    p.grad.copy_(part)
                elif part.any():
                    p.grad = part.clone()


# -- wrong ones ------------------------------------------------------------------------------------


class ForgetsToDivide(Buckets):
    def weight_of(self, examples, total):
        return 1


class AveragesAverages(Buckets):
    def weight_of(self, examples, total):
        return 1 / self.comm.size


class DividesTwice(Buckets):
    def give(self, bucket, flat):
        super().give(bucket, flat / self.comm.size)


class SumsOverExamples(Buckets):
    def weight_of(self, examples, total):
        return examples


class ForTwoRanks(Buckets):
    def weight_of(self, examples, total):
        return examples / total if self.comm.size <= 2 else 1 / 2


class LaunchesAtTheFirstGradient(Buckets):
    def ready(self, parameter):
        number = self.bucket_of[parameter]
        if number == len(self.handles):
            self.launch(number)


class LaunchesWhenFull(Buckets):
    """In another order on a rank that makes no use of a layer."""

    def ready(self, parameter):
        number = self.bucket_of[parameter]
        self.missing[number] -= 1
        if not self.missing[number]:
            self.order.append(number)
            self.launch(number)

    def begin(self, examples, total):
        super().begin(examples, total)
        self.order = []

    def finish(self):
        for number in range(len(self.buckets)):
            if number not in self.order:
                self.order.append(number)
                self.launch(number)
        for number, flat, handle in zip(self.order, self.flats, self.handles, strict=True):
            handle.wait()
            self.give(self.buckets[number], flat)


class BackwardsOnTheLastRank(Buckets):
    """The order of the list on one rank alone, and nothing before backward is over."""

    def ready(self, parameter):
        pass

    def finish(self):
        numbers = [*range(len(self.buckets))]
        for number in numbers[::-1] if self.comm.rank == self.comm.size - 1 else numbers:
            self.launch(number)
        self.unpack()


class NeverWaits(Buckets):
    def unpack(self):
        for bucket, flat in zip(self.buckets, self.flats, strict=True):
            self.give(bucket, flat)


class SleepsInsteadOfWaiting(NeverWaits):
    def unpack(self):
        time.sleep(0.3)
        super().unpack()


class WaitsAfterEach(Buckets):
    def launch(self, number):
        super().launch(number)
        self.handles[-1].wait()


class LaunchesInTheEnd(Buckets):
    def ready(self, parameter):
        pass


class WithoutALane(Buckets):
    def launch(self, number):
        self.flats.append(self.packed(self.buckets[number]))
        all_reduce(self.comm, self.flats[-1])
        self.handles.append(None)

    def unpack(self):
        for bucket, flat in zip(self.buckets, self.flats, strict=True):
            self.give(bucket, flat)


class ForgetsTheLast(Buckets):
    def finish(self):
        self.unpack()


class AllReducesTheParameters(Buckets):
    def packed(self, bucket):
        return self.weight * torch.cat([p.detach().flatten() for p in bucket])

    def give(self, bucket, flat):
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.data.copy_(part.view_as(p) + 1e-3 * self.comm.rank)


class NothingIsSetBack(Buckets):
    def begin(self, examples, total):
        if not hasattr(self, "missing"):
            super().begin(examples, total)


class ScalesAfterTheLaunch(Buckets):
    def weight_of(self, examples, total):
        self.share = examples / total
        return 1

    def launch(self, number):
        super().launch(number)
        self.flats[-1].mul_(self.share)


class HooksInBegin(Buckets):
    """Once more in each step."""

    def __init__(self, comm, buckets):
        self.comm, self.lane, self.buckets = comm, comm.lane("comm"), buckets
        self.bucket_of = {p: i for i, bucket in enumerate(buckets) for p in bucket}

    def begin(self, examples, total):
        super().begin(examples, total)
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self.ready)


class UnpacksInAnotherOrder(Buckets):
    def give(self, bucket, flat):
        super().give(bucket[::-1], flat)


class AddsToTheGradient(Buckets):
    def give(self, bucket, flat):
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad = part.view_as(p) if p.grad is None else p.grad + part.view_as(p)


class WeighsTwice(Buckets):
    def give(self, bucket, flat):
        super().give(bucket, self.weight * flat)


class TheOtherWayRound(Buckets):
    def weight_of(self, examples, total):
        return total / examples


class SkipsWhatItHasNotUsed(Buckets):
    """A bucket without the parameters that this rank has not used."""

    def packed(self, bucket):
        return self.weight * torch.cat([p.grad.flatten() for p in bucket if p.grad is not None])

    def give(self, bucket, flat):
        super().give([p for p in bucket if p.grad is not None], flat)


class NeedsEachGradient(Buckets):
    def packed(self, bucket):
        return self.weight * torch.cat([p.grad.flatten() for p in bucket])


class LeavesTheUnusedAsItWas(Buckets):
    """On a rank that has not used a parameter."""

    def give(self, bucket, flat):
        used = [p.grad is not None for p in bucket]
        super().give(bucket, flat)
        for p, there in zip(bucket, used, strict=True):
            p.grad = p.grad if there else None


class OneForEach(Buckets):
    def __init__(self, comm, buckets):
        super().__init__(comm, [[p] for bucket in buckets for p in bucket])


class InFloat32(Buckets):
    def packed(self, bucket):
        return super().packed(bucket).float()

    def give(self, bucket, flat):
        super().give(bucket, flat.double())


class ByTheBackend(Buckets):
    def launch(self, number):
        self.flats.append(self.packed(self.buckets[number]))
        self.handles.append(
            self.lane.submit(lambda comm, flat: comm.all_reduce(flat), self.flats[-1])
        )


class Nothing:
    def __init__(self, comm, buckets):
        pass

    def begin(self, examples, total):
        pass

    def finish(self):
        pass


class NotWritten(Nothing):
    def __init__(self, comm, buckets):
        raise NotImplementedError()


class HidesItsErrors(Buckets):
    def launch(self, number):
        self.flats.append(self.packed(self.buckets[number]))
        self.handles.append(self.lane.submit(all_reduce, [self.flats[-1]]))

    def unpack(self):
        for bucket, flat, handle in zip(self.buckets, self.flats, self.handles, strict=True):
            try:
                handle.wait()
            except:  # noqa: E722
                pass
            self.give(bucket, flat)


class LeavesOnTheLastRank(Buckets):
    """Its all-reduces are fewer on one rank."""

    def __init__(self, comm, buckets):
        super().__init__(comm, buckets[:1] if comm.rank == comm.size - 1 else buckets)


class NeverEnds(Buckets):
    def finish(self):
        while True:
            try:
                len(self.handles)
            except:  # noqa: E722
                pass


class RaisesInFinish(Buckets):
    def finish(self):
        raise KeyError("bucket")


class OfTheLibrary(Nothing):
    def __init__(self, comm, buckets):
        from dlviz.parallel.data import DDP

        DDP(holding(buckets), comm)


class AveragedByTheLibrary(Nothing):
    def __init__(self, comm, buckets):
        self.comm, self.model = comm, holding(buckets)

    def begin(self, examples, total):
        self.examples = examples

    def finish(self):
        from dlviz.parallel.data import average_gradients

        average_gradients(self.comm, self.model, self.examples)


class ByTorch(Buckets):
    def launch(self, number):
        self.flats.append(self.packed(self.buckets[number]))
        torch.distributed.all_reduce(self.flats[-1])
        self.handles.append(self.lane.submit(lambda comm: None))


class ChangesTheJudge(Nothing):
    def __init__(self, comm, buckets):
        for name, module in [*sys.modules.items()]:
            if name.startswith("dlviz.grading"):
                vars(module).update(_same=lambda *tensors: True, check_open=lambda *told: None)


def holding(buckets):
    model = torch.nn.Module()
    model.all = torch.nn.ParameterList([p for bucket in reversed(buckets) for p in bucket[::-1]])
    return model
