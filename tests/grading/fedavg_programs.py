"""Federated averaging as students write it, right and wrong. Every rank loads this file."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Pair(NamedTuple):
    """What rank 0 runs, and what the others run."""

    server: Callable[..., Any]
    client: Callable[..., Any]


# -- a round: right ones ---------------------------------------------------------------------------


def server(comm, weights, counts, data, rounds):
    update, total = torch.empty_like(weights), sum(counts.values())
    for _ in range(rounds):
        for client in counts:
            comm.send(weights, client)
        change = torch.zeros_like(weights)
        for _ in counts:
            client = comm.recv(update)
            change += counts[client] / total * update
        weights = weights + change
        data.test(weights)


def client(comm, weights, data, rounds, epochs, batch, sgd):
    for _ in range(rounds):
        comm.recv(weights, 0)
        own, optimizer = weights.clone(), sgd()
        for _ in range(epochs):
            for rows in torch.randperm(len(data)).split(batch):
                optimizer.step(own, data.gradient(own, rows))
        comm.send(own - weights, 0)


def averages_weights(comm, weights, counts, data, rounds):
    """Clients send their weights; all messages are under way at once."""
    found = {k: torch.empty_like(weights) for k in counts}
    for _ in range(rounds):
        receives = [comm.irecv(found[k], k) for k in counts]
        for request in [comm.isend(weights, k) for k in counts]:
            request.wait()
        for request in receives:
            request.wait()
        shares = torch.tensor([*counts.values()], dtype=torch.float64)
        weights.copy_((shares / shares.sum()) @ torch.stack([*found.values()]))
        data.test(weights)


def sends_weights(comm, weights, data, rounds, epochs, batch, sgd):
    """One order of the rows for all epochs of a round."""
    mine = torch.zeros_like(weights)
    for _ in range(rounds):
        comm.recv(mine, 0)
        optimizer, order = sgd(), torch.randperm(len(data))
        for i in range(epochs * -(-len(data) // batch)):
            begin = i * batch % (-(-len(data) // batch) * batch)
            optimizer.step(mine, data.gradient(mine, order[begin : begin + batch]))
        comm.isend(mine, 0).wait()


class Averager:
    """With a state; a client says with its update how many examples it is for."""

    def __init__(self, comm, weights, counts, data, rounds):
        self.comm, self.weights, self.counts = comm, weights, counts
        for _ in range(rounds):
            self.round()
            data.test(self.weights)

    def round(self):
        for k in sorted(self.counts, reverse=True):
            self.comm.send(self.weights, k)
        answers = dict(self.answer() for _ in self.counts)
        whole = sum(float(answer[-1]) for answer in answers.values())
        for k in sorted(answers):
            self.weights = self.weights.add(answers[k][:-1], alpha=float(answers[k][-1]) / whole)

    def answer(self):
        message = torch.empty(len(self.weights) + 1, dtype=self.weights.dtype)
        return self.comm.recv(message), message


def by_class(comm, weights, counts, data, rounds):
    Averager(comm, weights, counts, data, rounds)


def says_how_many(comm, weights, data, rounds, epochs, batch, sgd):
    for _ in range(rounds):
        comm.recv(weights, 0)
        start, optimizer = weights.clone(), sgd()
        for _ in range(epochs):
            order = random.sample(range(len(data)), len(data))
            while order:
                rows, order = order[:batch], order[batch:]
                optimizer.step(weights, data.gradient(weights, torch.tensor(rows)))
        comm.send(torch.cat([weights - start, weights.new_tensor([len(data)])]), 0)


RIGHT_ROUNDS = [
    Pair(server, client),
    Pair(averages_weights, sends_weights),
    Pair(by_class, says_how_many),
]


# -- wrong ones ------------------------------------------------------------------------------------


class Server:
    """As the first, in parts that a wrong one replaces; called as a function is."""

    def __init__(self, comm, weights, counts, data, rounds):
        self.comm, self.weights, self.counts, self.data = comm, weights, counts, data
        for number in range(rounds):
            self.send(number)
            self.weights = self.average(self.gather())
            self.test()

    def send(self, number):
        for k in self.counts:
            self.comm.send(self.weights, k)

    def gather(self):
        updates = {}
        for _ in self.counts:
            update = torch.empty_like(self.weights)
            updates[self.comm.recv(update)] = update
        return updates

    def average(self, updates):
        shares = {k: self.share(k) for k in sorted(updates)}
        return self.weights + sum(shares[k] * updates[k] for k in shares)

    def share(self, k):
        return self.counts[k] / sum(self.counts.values())

    def test(self):
        self.data.test(self.weights)


class Client:
    """Likewise."""

    def __init__(self, comm, weights, data, rounds, epochs, batch, sgd):
        self.comm, self.weights, self.data = comm, weights, data
        self.epochs, self.batch, self.sgd = epochs, batch, sgd
        for number in range(rounds):
            self.receive(number)
            start = self.weights.clone()
            self.train(self.optimizer(number))
            self.send(start)

    def receive(self, number):
        self.comm.recv(self.weights, 0)

    def optimizer(self, number):
        self.made = self.sgd()
        return self.made

    def train(self, optimizer):
        for _ in range(self.epochs):
            for rows in self.order().split(self.batch):
                self.step(optimizer, rows)

    def order(self):
        return torch.randperm(len(self.data))

    def step(self, optimizer, rows):
        optimizer.step(self.weights, self.data.gradient(self.weights, rows))

    def send(self, start):
        self.comm.send(self.weights - start, 0)


def pair(server: Callable[..., Any] = Server, client: Callable[..., Any] = Client) -> Pair:
    return Pair(server, client)


class Unweighted(Server):
    def share(self, k):
        return 1 / len(self.counts)


class CountsTheServersExamples(Server):
    def share(self, k):
        return self.counts[k] / (sum(self.counts.values()) + len(self.data))


class DoesNotDivide(Server):
    def share(self, k):
        return 1


class TimesExamples(Server):
    def share(self, k):
        return self.counts[k]


class Subtracts(Server):
    def share(self, k):
        return -super().share(k)


class LeavesTheLastOut(Server):
    def average(self, updates):
        updates.pop(max(updates))
        return super().average(updates)


class OverwritesItsBuffer(Server):
    def gather(self):
        update = torch.empty_like(self.weights)
        return {self.comm.recv(update): update for _ in self.counts}


class CountsOfTheLoop(Server):
    """Whichever update comes, by the client whose turn it is."""

    def gather(self):
        updates = {}
        for k in self.counts:
            updates[k] = torch.empty_like(self.weights)
            self.comm.recv(updates[k])
        return updates


class MeanInPairs(Server):
    def average(self, updates):
        change, *others = updates.values()
        for each in others:
            change = (change + each) / 2
        return self.weights + change


class AveragesBeforeAllCame(Server):
    """The last one comes, and is in no mean."""

    def gather(self):
        updates = super().gather()
        updates.popitem()
        return updates


class DividesBeforeItAdds(Server):
    """Anew with each update."""

    def average(self, updates):
        change = torch.zeros_like(self.weights)
        for k, each in sorted(updates.items()):
            change = (change + self.counts[k] * each) / sum(self.counts.values())
        return self.weights + change


class AsksOneByOne(Server):
    def send(self, number):
        pass

    def gather(self):
        updates = {}
        for k in self.counts:
            self.comm.send(self.weights, k)
            updates[k] = torch.empty_like(self.weights)
            self.comm.recv(updates[k], k)
        return updates


class SumsOfWeights(Server):
    def average(self, updates):
        return sum(updates.values())


class NeverAverages(Server):
    def average(self, updates):
        return self.weights


class ForgetsTheWeights(Server):
    def average(self, updates):
        return super().average(updates) - self.weights


class InFloat32(Server):
    def average(self, updates):
        return super().average(updates).float().double()


class TrainsOnItsOwn(Server):
    """The server as one more client."""

    def average(self, updates):
        own = self.weights.clone()
        for rows in torch.randperm(len(self.data)).split(4):
            own -= 0.1 * self.data.gradient(own, rows)
        n = sum(self.counts.values()) + len(self.data)
        total = len(self.data) / n * (own - self.weights)
        return self.weights + total + sum(self.counts[k] / n * updates[k] for k in updates)


class NeverTests(Server):
    def test(self):
        pass


class SendsOnce(Server):
    def send(self, number):
        if number == 0:
            super().send(number)


class TrainsFromItsOwn(Client):
    def receive(self, number):
        if number == 0:
            super().receive(number)


class IgnoresWhatItGets(Client):
    def receive(self, number):
        self.comm.recv(torch.empty_like(self.weights), 0)


class SendsWeights(Client):
    def send(self, start):
        self.comm.send(self.weights, 0)


class SendsTheState(Client):
    def receive(self, number):
        both = self.weights.new_empty(2, len(self.weights))
        self.comm.recv(both, 0)
        self.weights, self.velocity = both[0].clone(), both[1].clone()

    def optimizer(self, number):
        optimizer = super().optimizer(number)
        optimizer.velocity = self.velocity
        return optimizer

    def send(self, start):
        self.comm.send(torch.stack([self.weights - start, self.made.velocity]), 0)


class AveragesTheState(Server):
    velocity: Any = 0.0

    def send(self, number):
        for k in self.counts:
            self.comm.send(torch.stack([self.weights, self.weights * 0 + self.velocity]), k)

    def gather(self):
        updates = {}
        for _ in self.counts:
            both = self.weights.new_empty(2, len(self.weights))
            updates[self.comm.recv(both)] = both
        return updates

    def average(self, updates):
        self.velocity = sum(self.share(k) * both[1] for k, both in updates.items())
        return super().average({k: both[0] for k, both in updates.items()})


class OneOptimizer(Client):
    def optimizer(self, number):
        return super().optimizer(number) if number == 0 else self.made


class OptimizerEachEpoch(Client):
    def train(self, optimizer):
        for _ in range(self.epochs):
            optimizer = self.sgd()
            for rows in self.order().split(self.batch):
                self.step(optimizer, rows)


class AddsWhatItGets(Client):
    def receive(self, number):
        weights = torch.empty_like(self.weights)
        self.comm.recv(weights, 0)
        self.weights = self.weights + weights if number else weights


class BatchIsNumberOfBatches(Client):
    def train(self, optimizer):
        for _ in range(self.epochs):
            for rows in self.order().tensor_split(self.batch):
                self.step(optimizer, rows)


class ForgetsTheLastRow(Client):
    def order(self):
        return torch.randperm(len(self.data) - 1)


class SendsZeros(Client):
    def send(self, start):
        self.comm.send(torch.zeros_like(start), 0)


class SumsGradients(Client):
    def train(self, optimizer):
        self.total = torch.zeros_like(self.weights)
        super().train(optimizer)

    def step(self, optimizer, rows):
        self.total += self.data.gradient(self.weights, rows)
        optimizer.step(self.weights, self.total)


class SameOrder(Client):
    def train(self, optimizer):
        torch.manual_seed(self.comm.rank)
        super().train(optimizer)


class NoOrder(Client):
    def order(self):
        return torch.arange(len(self.data))


class DrawsWithReplacement(Client):
    def order(self):
        return torch.randint(len(self.data), (len(self.data),))


class DropsTheLastBatch(Client):
    def order(self):
        return super().order()[: len(self.data) // self.batch * self.batch]


class OneEpoch(Client):
    def train(self, optimizer):
        self.epochs = 1
        super().train(optimizer)


class FullBatch(Client):
    def train(self, optimizer):
        self.batch = len(self.data)
        super().train(optimizer)


class UnequalBatches(Client):
    def train(self, optimizer):
        for _ in range(self.epochs):
            for rows in self.order().tensor_split(-(-len(self.data) // self.batch)):
                self.step(optimizer, rows)


class StaysAtTheStart(Client):
    def train(self, optimizer):
        self.there = self.weights.clone()
        super().train(optimizer)

    def step(self, optimizer, rows):
        optimizer.step(self.weights, self.data.gradient(self.there, rows))


class DividesTheGradient(Client):
    def step(self, optimizer, rows):
        optimizer.step(self.weights, self.data.gradient(self.weights, rows) / len(rows))


class NeverSteps(Client):
    def step(self, optimizer, rows):
        self.weights -= 0.1 * self.data.gradient(self.weights, rows)


class Broadcasts(Server):
    def send(self, number):
        self.comm.broadcast(self.weights, 0)


class IsBroadcastTo(Client):
    def receive(self, number):
        self.comm.broadcast(self.weights, 0)


class TellsItsNeighbour(Client):
    def send(self, start):
        if self.comm.rank > 1:
            self.comm.isend(self.weights, 1).wait()
        else:
            for _ in range(self.comm.size - 2):
                self.comm.recv(torch.empty_like(self.weights), range(2, self.comm.size))
        super().send(start)


class HidesItsErrors(Server):
    def send(self, number):
        try:
            self.comm.send(self.weights, 99)
        except ValueError:
            super().send(number)


class MakesFloat32(Server):
    def gather(self):
        return {k: torch.empty(len(self.weights)) for k in self.counts if self.take()}

    def take(self):
        return self.comm.recv(torch.empty(len(self.weights)))


class ByTheLibrary(Server):
    def send(self, number):
        from dlviz import federated

        mine = (torch.randn(4, 3), torch.arange(4) % 2)
        federated.train(self.comm, torch.nn.Linear(3, 2), [mine], rounds=1)


class HidesTheLibrary(ByTheLibrary):
    def send(self, number):
        try:
            super().send(number)
        except Exception:
            Server.send(self, number)


def nothing(*_):
    pass


def not_written(*_):
    raise NotImplementedError()


# -- who takes part --------------------------------------------------------------------------------


def samples(clients, fraction, rng):
    return rng.sample(clients, max(1, round(fraction * len(clients))))


def shuffles(clients, fraction, rng):
    rng.shuffle(clients)
    return sorted(clients[: max(1, round(fraction * len(clients)))])


def draws_one_by_one(clients, fraction, rng):
    left, picked = set(clients), []
    while left and (not picked or len(picked) + 0.5 < fraction * len(clients)):
        picked.append(rng.choice(sorted(left)))
        left.remove(picked[-1])
    return tuple(picked)


RIGHT_SELECT = [samples, shuffles, draws_one_by_one]


def takes_the_first(clients, fraction, rng):
    return clients[: max(1, round(fraction * len(clients)))]


def draws_with_replacement(clients, fraction, rng):
    return rng.choices(clients, k=max(1, round(fraction * len(clients))))


def draws_from_another_rng(clients, fraction, rng):
    return samples(clients, fraction, random)


def begins_again(clients, fraction, rng):
    return samples(clients, fraction, random.Random(0))


def takes_all(clients, fraction, rng):
    return clients


def rounds_up(clients, fraction, rng):
    return rng.sample(clients, max(1, math.ceil(fraction * len(clients))))


def cuts_off(clients, fraction, rng):
    return rng.sample(clients, max(1, int(fraction * len(clients))))


def takes_nobody(clients, fraction, rng):
    return rng.sample(clients, round(fraction * len(clients) - 0.4))


def numbers_them_anew(clients, fraction, rng):
    return rng.sample(range(1, len(clients) + 1), max(1, round(fraction * len(clients))))


def likes_one(clients, fraction, rng):
    count = max(1, round(fraction * len(clients)))
    return [clients[0], *rng.sample(clients[1:], count - 1)] if rng.random() < 0.9 else clients[:0]


def likes_the_last(clients, fraction, rng):
    others = samples(clients, fraction, rng)
    return others if clients[-1] in others or rng.random() < 0.5 else [*others[1:], clients[-1]]


# -- a deadline: right ones ------------------------------------------------------------------------


def waits_in_vain(comm, weights, counts, data, rounds, choose, deadline):
    message, owing = torch.empty(1 + len(weights), dtype=weights.dtype), set()
    for number in range(rounds):
        due = comm.now() + deadline
        chosen = choose([k for k in counts if k not in owing])
        for k in chosen:
            comm.send(torch.cat([torch.tensor([number]), weights]), k)
        owing.update(chosen)
        updates = {}
        while len(updates) < len(chosen):
            k = comm.recv(message, deadline=due)
            if k is None:
                break
            owing.remove(k)
            if message[0] == number:
                updates[k] = message[1:].clone()
        total = sum(counts[k] for k in updates)
        weights = weights + sum(counts[k] / total * updates[k] for k in sorted(updates))
        data.test(weights)
    while owing:
        owing.remove(comm.recv(message))


def knows_whom_it_asked(comm, weights, counts, data, rounds, choose, deadline):
    """It remembers in which round it has asked whom, and listens to those alone who owe."""
    asked_in, new = {}, torch.empty_like(weights)
    message = torch.zeros(len(weights) + 1, dtype=torch.float64)
    for number in range(rounds):
        begin, total, n = comm.now(), torch.zeros_like(weights), 0
        free = sorted({*counts} - {*asked_in})
        for request in [
            comm.isend(torch.cat((weights.new_full((1,), number), weights)), k)
            for k in choose(free)
            if asked_in.setdefault(k, number) == number
        ]:
            request.wait()
        while number in asked_in.values():
            source = comm.recv(message, [*asked_in], deadline=begin + deadline)
            if source is None:
                break
            if asked_in.pop(source) == number:
                n += counts[source]
                total += counts[source] * message[1:]
        torch.add(weights, total / n if n else 0, out=new)
        weights.copy_(new)
        data.test(weights)
    for k in asked_in:
        comm.recv(message, k)


class Timed:
    """With a state, in parts that a wrong one replaces; called as a function is."""

    def __init__(self, comm, weights, counts, data, rounds, choose, deadline):
        self.comm, self.weights, self.counts, self.data = comm, weights, counts, data
        self.choose, self.deadline = choose, deadline
        self.message = torch.empty(1 + len(weights), dtype=weights.dtype)
        self.owing: set[int] = set()
        for number in range(rounds):
            self.due = self.until()
            chosen = self.ask(number)
            updates = self.gather(number, chosen)
            self.weights = self.average(updates, chosen)
            self.test()
        self.finish()

    def until(self):
        return self.comm.now() + self.deadline

    def free(self):
        return [k for k in self.counts if k not in self.owing]

    def ask(self, number):
        chosen = self.choose(self.free())
        for k in chosen:
            self.comm.send(self.to_send(number), k)
        self.owing |= {*chosen}
        return chosen

    def to_send(self, number):
        return torch.cat([torch.tensor([float(number)]), self.weights])

    def gather(self, number, chosen):
        updates = {}
        while not self.over(updates, chosen) and (k := self.take()) is not None:
            self.release(k, number)
            if self.counts_for(number):
                updates[k] = self.update()
        return updates

    def over(self, updates, chosen):
        return len(updates) == len(chosen)

    def take(self):
        return self.comm.recv(self.message, deadline=self.due)

    def release(self, k, number):
        self.owing.discard(k)

    def counts_for(self, number):
        return int(self.message[0]) == number

    def update(self):
        return self.message[1:].clone()

    def average(self, updates, chosen):
        whole = self.whole(updates, chosen)
        return self.weights + sum(self.counts[k] / whole * updates[k] for k in updates)

    def whole(self, updates, chosen):
        return sum(self.counts[k] for k in updates)

    def test(self):
        self.data.test(self.weights)

    def finish(self):
        while self.owing:
            self.owing.discard(self.comm.recv(self.message))


RIGHT_TIMED = [waits_in_vain, knows_whom_it_asked, Timed]


# -- wrong ones ------------------------------------------------------------------------------------


class DividesByAll(Timed):
    def whole(self, updates, chosen):
        return sum(self.counts.values())


class CountsTheDropped(Timed):
    def whole(self, updates, chosen):
        return sum(self.counts[k] for k in chosen)


class UnweightedTimed(Timed):
    def average(self, updates, chosen):
        return self.weights + sum(updates.values()) / max(1, len(updates))


class DividesByZero(Timed):
    def average(self, updates, chosen):
        total = torch.zeros_like(self.weights)
        for k in updates:
            total += self.counts[k] * updates[k]
        return self.weights + total / torch.tensor(float(self.whole(updates, chosen)))


class WaitsForAll(Timed):
    def take(self):
        return self.comm.recv(self.message)


class DeadlineSlides(Timed):
    def take(self):
        return self.comm.recv(self.message, deadline=self.until())


class DeadlineOfTheRun(Timed):
    def until(self):
        return self.deadline


class DeadlineAfterTheSends(Timed):
    def ask(self, number):
        chosen = super().ask(number)
        self.due = self.until()
        return chosen


class WaitsUntilTheDeadline(Timed):
    def over(self, updates, chosen):
        return False


class TakesTheFirst(Timed):
    def over(self, updates, chosen):
        return bool(updates)


class LateInTheWrongRound(Timed):
    def counts_for(self, number):
        return True


class LateIsAddedAtOnce(Timed):
    """As it comes, by its share, and yet it does not end the round."""

    def release(self, k, number):
        super().release(k, number)
        if not self.counts_for(number):
            self.weights = self.weights + self.counts[k] / 100 * self.update()


class AsksWhoOwes(Timed):
    def free(self):
        return [*self.counts]


class NeverFreesTheLate(Timed):
    def release(self, k, number):
        if self.counts_for(number):
            super().release(k, number)

    def finish(self):
        pass


class LeavesUpdates(Timed):
    def finish(self):
        pass


class KeepsViews(Timed):
    def update(self):
        return self.message[1:]


class SendsTheOldWeights(Timed):
    old: Any = None

    def to_send(self, number):
        self.old = self.weights if self.old is None else self.old
        return torch.cat([torch.tensor([float(number)]), self.old])


class NamesNoRound(Timed):
    def to_send(self, number):
        return super().to_send(0)

    def counts_for(self, number):
        return True


class NeverTestsTimed(Timed):
    def test(self):
        pass


class AsksNobody(Timed):
    def ask(self, number):
        return []


class ReceivesFromAll(Timed):
    def gather(self, number, chosen):
        updates = {}
        for _ in self.counts:
            k = self.comm.recv(self.message)
            self.owing.discard(k)
            updates[k] = self.update()
        return updates


class GoesOnAfterNone(Timed):
    def gather(self, number, chosen):
        updates = {}
        while len(updates) < len(chosen):
            if (k := self.take()) is not None:
                updates[k] = self.update()
        return updates


class KeysNone(Timed):
    def gather(self, number, chosen):
        updates = {}
        for _ in chosen:
            k = self.take()
            self.owing.discard(k)
            updates[k] = self.update()
        return updates


class TimedByTheLibrary(Timed):
    def ask(self, number):
        from dlviz import federated

        mine = (torch.randn(4, 3), torch.arange(4) % 2)
        federated.train(self.comm, torch.nn.Linear(3, 2), [mine], rounds=1)
