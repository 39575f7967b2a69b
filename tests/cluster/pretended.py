"""Ranks that pretend to have a GPU each, and random programs of theirs."""

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns

import torch
from random_programs import sums, wait_shuffled, wrong

from dlviz.cluster.control.form import empty
from dlviz.cluster.transport.devices import DeviceTransport
from dlviz.cluster.transport.nccl import bytes_of

DEVICE, HOST = torch.device("cuda", 0), torch.device("cpu")


class OnDevice(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cpu = property(lambda self: False)
    device = property(lambda self: DEVICE)

    def cpu(self):
        return self.as_subclass(torch.Tensor)

    def to(self, where):
        return self if where == DEVICE else self.cpu()


def on_device(tensor):
    return tensor.as_subclass(OnDevice)


class Streams:
    """A DeviceGroup over gloo that gives what NCCL promises and no more.

    All of a rank's sends are in one stream of its GPU and all receives in another. A transfer keeps
    both of its streams busy from when it is launched until it is over, which takes both sides; the
    k-th from one rank to another is the k-th of both, and it raises where they do not mean the same
    message. Two receives of one rank may not be launched at a time."""

    name = "fake"
    device = DEVICE

    def __init__(self, process, ranks):
        self._gloo = process.groups.connect("streams", tuple(range(ranks)))
        self._process = process
        self._sends, self._receives = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._sent, self._received = Counter(), Counter()
        self._receiving = 0
        self.carried = 0

    def mark(self):
        return perf_counter_ns()

    def send(self, wire, dst, slot, after):
        assert after <= perf_counter_ns()
        number = 3 * self._sent[dst]
        self._sent[dst] += 1
        return self._sends.submit(self._give, bytes_of(wire).cpu(), dst, slot, number)

    def receive(self, form, src, slot):
        assert not self._receiving, "two receives at a time"
        self._receiving = True
        number = 3 * self._received[src]
        self._received[src] += 1
        landed = empty(form, HOST)
        self._receives.submit(self._take, bytes_of(landed), src, slot, number).result()
        self._receiving = False
        return on_device(landed)

    def used(self, landed):
        assert not landed.is_cpu

    def join(self, name, members):
        return self._process.groups.connect(f"fake {name}", members)

    def carry(self, start):
        self.carried += 1
        start().wait()

    @property
    def transfers(self):
        return sum(self._sent.values()), sum(self._received.values())

    def _give(self, data, dst, slot, number):
        self._gloo.recv([torch.zeros(1)], dst, number).wait()  # it has begun to receive
        self._gloo.send([torch.tensor([slot, len(data)])], dst, number + 1).wait()
        self._gloo.send([data], dst, number + 2).wait()

    def _take(self, data, src, slot, number):
        sent = torch.zeros(2, dtype=torch.int64)
        try:
            self._gloo.send([torch.zeros(1)], src, number).wait()
            self._gloo.recv([sent], src, number + 1).wait()
            assert sent.tolist() == [slot, len(data)], "another message"
            self._gloo.recv([data], src, number + 2).wait()
        except RuntimeError as error:
            raise OSError(str(error)) from None


def with_devices(comm):
    """A Comm of ranks that pretend to have a GPU each, and their group; all ranks call it."""
    process, parts = comm.process, (comm.process.rank, comm.process.pipes, comm.process.waiting)
    group = Streams(process, comm.size)
    process.transport = DeviceTransport(process.transport, group, *parts)
    comm.barrier()
    return comm.split(0), group


# -- messages --------------------------------------------------------------------------------------
SIZES = (0, 1, 7, 2000, 70_000)
LOOSE = 50  # elements of a message that is taken from whichever rank it comes


def program(seed, ranks, length=100):
    """Messages: (src, dst, tag, elements, whether it is sent from a GPU, and received onto one)."""
    draw = random.Random(seed)
    places = ((True, True), (True, True), (True, False), (False, False))
    found = []
    for _ in range(length):
        src, dst = draw.sample(range(ranks), 2)
        tag, size, where = draw.randrange(3), draw.choice(SIZES), draw.choice(places)
        found.append((src, dst, tag, *((LOOSE, True, True) if tag == 2 else (size, *where))))
    return found


def carry_out(comm, seed, put):
    """Each rank sends in order and waits for its receives in an order of its own; of tag 2 it takes
    what comes first, from any rank. Meanwhile collectives of all ranks and of a half, on a lane."""
    messages, draw = program(seed, comm.size), random.Random(seed * 100 + comm.rank)
    half, lane = comm.split(comm.rank % 2), comm.lane("side")
    beside = lane.submit(sums, half, 5, put)
    sends, receives, loose = [], [], []
    for number, (src, dst, tag, length, theirs, ours) in enumerate(messages):
        if src == comm.rank:
            tensor = torch.full((2, length), float(number))
            tensor = put(tensor) if theirs else tensor
            sends.append(comm.isend(tensor.t()[:, 0] if number % 2 else tensor[0], dst, tag))
        elif dst == comm.rank and tag == 2:
            loose.append((src, number))
        elif dst == comm.rank:
            op = draw.choice(("copy", "sum", "max", "min", "product"))
            target = torch.full((length,), -1.0)
            target = put(target) if ours else target
            receives.append((comm.irecv(target, src, tag, op=op), target, number, op))
        if number % 30 == 29:
            total = put(torch.ones(3))
            comm.all_reduce(total)
            assert total.tolist() == [comm.size] * 3
            wait_shuffled(receives[::2], draw)
    wait_shuffled(receives, draw)
    others = take_loose(comm, loose, put)
    for send in sends:
        send.wait()
    return wrong(receives) + others, beside.wait()


def take_loose(comm, loose, put):
    """Receive these messages of tag 2, (source, number), as they come."""
    wrong, left = [], list(loose)
    while left:
        target = put(torch.zeros(LOOSE))
        src = comm.recv(target, tag=2)
        number = next(number for source, number in left if source == src)
        left.remove((src, number))
        wrong += [] if bool((target == float(number)).all()) else [(number, "any")]
    return wrong


def pretend(comm, seed):
    comm, group = with_devices(comm)
    return *carry_out(comm, seed, on_device), group.transfers, group.carried


def check_transfers(results, seed):
    """That messages which may go from GPU to GPU did, and no others."""
    moved = [each for each in program(seed, len(results)) if each[4] and each[3]]
    sent, received = (Counter(each[end] for each in moved) for end in (0, 1))
    for rank, (*_, transfers, carried) in enumerate(results):
        assert tuple(transfers) == (sent[rank], received[rank]) and carried >= 3
