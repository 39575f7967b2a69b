"""Locked workers and parameter servers as students write them, right and wrong. Every rank loads
this file."""

from __future__ import annotations

import math
import time

import torch

# -- steps under the lock: right ones --------------------------------------------------------------


def reads_then_updates(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor -= change


def one_hold_a_step(shared, gradient, steps, lr):
    with shared.lock():
        weights = shared.tensor.clone()
    for _ in range(steps):
        found = gradient(weights)
        with shared.lock():
            shared.tensor.add_(found, alpha=-lr)
            weights.copy_(shared.tensor)


def through_names(shared, gradient, steps, lr):
    def pull():
        with shared.lock():
            return torch.cat([shared.tensor])

    def push(found):
        with shared.lock():
            there = shared.tensor
            there.copy_(there - found * lr)

    for _ in range(steps):
        push(gradient(pull()))


RIGHT_WORK = [reads_then_updates, one_hold_a_step, through_names]

# -- wrong ones ------------------------------------------------------------------------------------


def holds_it_all(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            shared.tensor -= lr * gradient(shared.tensor)


def writes_back(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        weights -= lr * gradient(weights)
        with shared.lock():
            shared.tensor.copy_(weights)


def reads_without_the_lock(shared, gradient, steps, lr):
    for _ in range(steps):
        weights = shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor.copy_(weights - change)


def keeps_no_copy(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor -= change


def without_the_lock(shared, gradient, steps, lr):
    for _ in range(steps):
        shared.tensor -= lr * gradient(shared.tensor)


def updates_without_the_lock(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        shared.tensor -= lr * gradient(weights)


def binds_a_new_tensor(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor = shared.tensor - change


def reads_once(shared, gradient, steps, lr):
    with shared.lock():
        weights = shared.tensor.clone()
    for _ in range(steps):
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor -= change


def copies_before_its_update(shared, gradient, steps, lr):
    with shared.lock():
        weights = shared.tensor.clone()
    for _ in range(steps):
        change = lr * gradient(weights)
        with shared.lock():
            weights = shared.tensor.clone()
            shared.tensor -= change


def updates_twice(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        change = lr * gradient(weights)
        for _ in range(2):
            with shared.lock():
                shared.tensor -= change


def takes_twice_as_much(shared, gradient, steps, lr):
    reads_then_updates(shared, gradient, steps, 2 * lr)


def goes_uphill(shared, gradient, steps, lr):
    reads_then_updates(shared, gradient, steps, -lr)


def forgets_the_rate(shared, gradient, steps, lr):
    reads_then_updates(shared, gradient, steps, 1)


def in_float32(shared, gradient, steps, lr):
    reads_then_updates(shared, lambda weights: gradient(weights).float(), steps, lr)


def acquires_the_lock(shared, gradient, steps, lr):
    lock = shared.lock()
    for _ in range(steps):
        lock.acquire()
        weights = shared.tensor.clone()
        lock.release()
        change = lr * gradient(weights)
        lock.acquire()
        shared.tensor -= change
        lock.release()


def averages_with_its_copy(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        own = weights - lr * gradient(weights)
        with shared.lock():
            shared.tensor.copy_((shared.tensor + own) / 2)


def adds_up_its_gradients(shared, gradient, steps, lr):
    total = 0
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        total = total + gradient(weights)
        with shared.lock():
            shared.tensor -= lr * total


def changes_a_copy(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            weights = shared.tensor.clone()
            weights -= change


def one_update_in_the_end(shared, gradient, steps, lr):
    total = 0
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        total = total + lr * gradient(weights)
    with shared.lock():
        shared.tensor -= total


def writes_the_part_alone(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor.copy_(-change)


def lets_the_weights_decay(shared, gradient, steps, lr):
    for _ in range(steps):
        with shared.lock():
            weights = shared.tensor.clone()
        change = lr * gradient(weights)
        with shared.lock():
            shared.tensor *= 1 - lr
            shared.tensor -= change


def one_step_less(shared, gradient, steps, lr):
    reads_then_updates(shared, gradient, steps - 1, lr)


def locks_twice(shared, gradient, steps, lr):
    with shared.lock():
        reads_then_updates(shared, gradient, steps, lr)


def nothing(*_):
    pass


def not_written(*_):
    raise NotImplementedError()


def never_ends(shared, *_):
    while True:
        time.sleep(0.01)


# -- the server: right ones ------------------------------------------------------------------------


def looks_at_all_that_are_held(comm, weights, update, pushes, bound):
    gradient = torch.empty_like(weights)
    clock = dict.fromkeys(pushes, 0)
    held = []
    for _ in range(sum(pushes.values())):
        worker = comm.recv(gradient)
        update(worker, gradient)
        clock[worker] += 1
        held.append(worker)
        going = [clock[each] for each in pushes if clock[each] < pushes[each]]
        for each in [*held]:
            if clock[each] == pushes[each] or clock[each] - min(going) <= bound:
                held.remove(each)
                comm.send(weights, each)


def counts_what_is_left(comm, weights, update, pushes, bound):
    left, gradient, waiting = dict(pushes), torch.zeros_like(weights), set()
    while any(left.values()):
        worker = comm.recv(gradient, None)
        left[worker] -= 1
        update(worker, gradient)
        waiting.add(worker)
        slowest = min((pushes[w] - n for w, n in left.items() if n), default=math.inf)
        free = {w for w in waiting if pushes[w] - left[w] - bound <= slowest or not left[w]}
        requests = [comm.isend(weights, w) for w in sorted(free, reverse=True)]
        waiting -= free
        for request in requests:
            request.wait()


class Service:
    """With a state, and answers at the head of the loop."""

    def __init__(self, comm, weights, update, pushes, bound):
        self.comm, self.weights, self.update = comm, weights, update
        self.pushes, self.bound = pushes, bound
        self.clock, self.held = {w: 0 for w in pushes}, []
        while self.answer():
            gradient = torch.empty_like(weights)
            worker = comm.recv(gradient)
            update(worker, gradient)
            self.clock[worker] += 1
            self.held.insert(0, worker)

    def done(self, worker):
        return self.clock[worker] >= self.pushes[worker]

    def may_go_on(self, worker):
        others = [c for w, c in self.clock.items() if not self.done(w)]
        return self.done(worker) or all(self.clock[worker] <= c + self.bound for c in others)

    def answer(self):
        for worker in filter(self.may_go_on, [*self.held]):
            self.comm.send(self.weights, worker)
            self.held.remove(worker)
        return not all(map(self.done, self.pushes))


def by_class(comm, weights, update, pushes, bound):
    Service(comm, weights, update, pushes, bound)


RIGHT_SERVE = [looks_at_all_that_are_held, counts_what_is_left, by_class]


# -- wrong ones ------------------------------------------------------------------------------------


class Right:
    """As the first, in parts that a wrong one replaces; called as a function is."""

    def __init__(self, comm, weights, update, pushes, bound):
        self.comm, self.weights, self.update = comm, weights, update
        self.pushes, self.bound = pushes, bound
        self.gradient = torch.empty_like(weights)
        self.clock, self.held = dict.fromkeys(pushes, 0), []
        self.serve()

    def serve(self):
        for _ in range(sum(self.pushes.values())):
            worker = self.take()
            self.apply(worker)
            self.clock[worker] += 1
            self.held.append(worker)
            self.answer(worker)

    def take(self):
        return self.comm.recv(self.gradient)

    def apply(self, worker):
        self.update(worker, self.gradient)

    def answer(self, worker):
        for each in [*self.held]:
            if self.free(each, worker):
                self.held.remove(each)
                self.comm.send(self.weights, each)

    def done(self, worker):
        return self.clock[worker] == self.pushes[worker]

    @property
    def slowest(self):
        return min((c for w, c in self.clock.items() if not self.done(w)), default=math.inf)

    def free(self, each, worker):
        return self.done(each) or self.clock[each] - self.slowest <= self.bound


class OneTooFew(Right):
    def free(self, each, worker):
        return self.done(each) or self.clock[each] - self.slowest < self.bound


class OneTooMany(Right):
    def free(self, each, worker):
        return self.done(each) or self.clock[each] - self.slowest <= self.bound + 1


class BoundOnItsOwnClock(Right):
    def free(self, each, worker):
        return self.done(each) or self.clock[each] - self.clock[worker] <= self.bound


class BoundOnTheFastest(Right):
    def free(self, each, worker):
        return max(self.clock.values()) - self.clock[each] <= self.bound


class NoBound(Right):
    def free(self, each, worker):
        return True


class WaitsForAll(Right):
    def free(self, each, worker):
        return len({*self.held} | {w for w in self.clock if self.done(w)}) == len(self.clock)

    def answer(self, worker):
        if self.free(worker, worker):
            for each in self.held:
                self.comm.send(self.weights, each)
            self.held.clear()


class WaitsForTheFinished(Right):
    @property
    def slowest(self):
        return min(self.clock.values())


class HoldsTheFinished(Right):
    def free(self, each, worker):
        return self.clock[each] - min(self.clock.values()) <= self.bound


class AnswersOnlyWhoPushed(Right):
    def answer(self, worker):
        if self.free(worker, worker):
            self.held.remove(worker)
            self.comm.send(self.weights, worker)


class DropsThoseThatAreLate(Right):
    def apply(self, worker):
        if max(self.clock.values()) - self.clock[worker] < 2:
            self.update(worker, self.gradient)


class AppliesTwice(Right):
    def apply(self, worker):
        self.update(worker, self.gradient)
        self.update(worker, self.gradient)


class NeverApplies(Right):
    def apply(self, worker):
        pass


class AnswersBeforeItApplies(Right):
    def serve(self):
        for _ in range(sum(self.pushes.values())):
            worker = self.take()
            self.clock[worker] += 1
            self.held.append(worker)
            self.answer(worker)
            self.apply(worker)


class AppliesWhenItAnswers(Right):
    """When another push is in the tensor."""

    def apply(self, worker):
        pass

    def answer(self, worker):
        for each in [*self.held]:
            if self.free(each, worker):
                self.held.remove(each)
                self.update(each, self.gradient)
                self.comm.send(self.weights, each)


class AnswersWithACopy(Right):
    """The weights that were there when the push came, to those too that are held."""

    def serve(self):
        self.copies = {}
        super().serve()

    def apply(self, worker):
        self.update(worker, self.gradient)
        self.copies[worker] = self.weights.clone()

    def answer(self, worker):
        for each in [*self.held]:
            if self.free(each, worker):
                self.held.remove(each)
                self.comm.send(self.copies[each], each)


class AnswersWithTheGradient(Right):
    def answer(self, worker):
        self.weights, weights = self.gradient, self.weights
        super().answer(worker)
        self.weights = weights


class TakesTheGradientOffToo(Right):
    def answer(self, worker):
        self.weights -= self.gradient
        super().answer(worker)


class TurnsTheBoundIntoAnInt(Right):
    def free(self, each, worker):
        return self.done(each) or self.clock[each] - self.slowest <= int(self.bound)


class CountsUpToTheBound(Right):
    def free(self, each, worker):
        return self.done(each) or self.clock[each] - self.slowest in range(self.bound + 1)


class TakesTheFinishedOut(Right):
    """Without an answer."""

    def answer(self, worker):
        self.held = [each for each in self.held if not self.done(each)]
        super().answer(worker)


class AnswersTheFinishedInTheEnd(Right):
    def serve(self):
        super().serve()
        for each in self.held:
            self.comm.send(self.weights, each)

    def free(self, each, worker):
        return not self.done(each) and super().free(each, worker)


class InTurn(Right):
    """Of worker 1 first, then of 2, and so on."""

    def take(self):
        going = [w for w in self.clock if not self.done(w)]
        worker = min(going, key=self.clock.__getitem__)
        return self.comm.recv(self.gradient, worker)


class WorkerOneFirst(Right):
    def take(self):
        return self.comm.recv(self.gradient, next(w for w in self.clock if not self.done(w)))


class NeverLetsTheLastGoOn(Right):
    def answer(self, worker):
        if not self.done(worker):
            super().answer(worker)


class ExpectsOneMore(Right):
    def serve(self):
        while True:
            worker = self.take()
            self.apply(worker)
            self.clock[worker] += 1
            self.held.append(worker)
            self.answer(worker)


class AnswersTwice(Right):
    def answer(self, worker):
        for each in [*self.held]:
            if self.free(each, worker):
                self.held.remove(each)
                self.comm.send(self.weights, each)
                self.comm.send(self.weights, each)


class NeverWaitsForItsAnswers(Right):
    def answer(self, worker):
        for each in [*self.held]:
            if self.free(each, worker):
                self.held.remove(each)
                self.comm.isend(self.weights, each)


class NamesNobody(Right):
    def apply(self, worker):
        self.update(0, self.gradient)


class ByTheLibrary(Right):
    def take(self):
        from dlviz.parallel.push_pull import Parcel

        model = torch.nn.Linear(self.weights.numel() - 2, 1, bias=False).double()
        parcel = Parcel(self.comm, model)  # it sends two numbers more
        worker, _ = parcel.receive(range(1, self.comm.size))
        self.gradient.copy_(parcel.buckets[0].flat)
        return worker


class HidesItsErrors(Right):
    def apply(self, worker):
        try:
            self.comm.send(self.weights, 99)
        except ValueError:
            self.update(worker, self.gradient)
