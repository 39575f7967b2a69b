"""A rank of a run on several hosts: its messages to ranks of other hosts go on lines, its calls of
collectives through their pipes, which the parent of its host reads."""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import torch

from dlviz.cluster.control.board import EPOCH, WHEN, Board
from dlviz.cluster.control.group import CALL, PHASE, Call, Group
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.hosts.lines import HostPipes, connect
from dlviz.cluster.hosts.network import Network
from dlviz.cluster.hosts.records import CELL, completed, shown
from dlviz.cluster.transport import Transport
from dlviz.cluster.transport.choose import choose
from dlviz.cluster.transport.gloo import Gloo


class SeveralHosts:
    """The control of such a rank."""

    def __init__(self, folder: str, rank: int, board: Board, store: Any, network: Network):
        self.pipes = HostPipes(folder, rank, board, connect(network, rank, store))
        self.board = board
        self.host = network.here.name
        self.threads = frozenset({self.pipes.thread.ident or 0})
        self._rank = rank
        self._network = network

    def waiting(self, matching: Matching) -> Waiting:
        return HostWaiting(self._rank, self.board, self.pipes, matching, self._network)

    def group(
        self,
        path: str,
        members: tuple[int, ...],
        waiting: Any,
        transport: Transport,
        left: deque[torch.Tensor],
    ) -> Group:
        parts = path, members, self._rank, waiting, transport, left
        return Group(*parts) if self.reaches(members) else HostGroup(*parts, self._network)

    def share_epoch(self, gloo: Any) -> None:
        """Align the clock of this host's ranks with that of rank 0."""
        epoch = torch.tensor([self.board.get(0, EPOCH)])
        options = torch.distributed.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        gloo.broadcast([epoch], options).wait()
        if self._network.own:
            self.board.put(0, EPOCH, int(epoch) + self._network.ahead)

    def reaches(self, members: Collection[int]) -> bool:
        return self._network.near.issuperset(members)

    def host_of(self, member: int) -> int:
        return self._network.host_of[member]


def choose_by_host(
    folder: str, rank: int, board: Board, group: Any, sync: Callable[[], None], network: Network
) -> Transport:
    """The transport of the ranks of several hosts; within a host the one that `choose` returns."""
    near = network.here.ranks
    board_of_host: Any = NearBoard(board, near[0], len(near))
    inside = choose(folder, rank - near[0], board_of_host, group, sync)
    gloo = Gloo(group)
    if isinstance(inside, Gloo):
        return gloo
    return ByHost(Inside(inside, near[0]), gloo, network.near)


class HostWaiting(Waiting):
    """Sends the completions of messages from other hosts there."""

    _pipes: HostPipes

    def __init__(
        self, rank: int, board: Board, pipes: HostPipes, matching: Matching, network: Network
    ):
        super().__init__(rank, board, pipes, matching)
        self._times, self._near = board.times, network.near

    def complete(self, peer: int, slot: int, state: int, soon: bool) -> None:
        if peer in self._near:
            super().complete(peer, slot, state, soon)
            return
        record = completed(slot, state, self._times[slot + WHEN])
        (self._pipes.send if soon else self._pipes.send_later)(peer, record)

    def notify(self, *peers: int) -> None:
        """Ranks of other hosts are rung by their parent."""
        super().notify(*self._near.intersection(peers))

    def write(self, peer: int, record: bytes) -> None:
        """Write into the pipe of a rank elsewhere, which this host's parent reads."""
        pipe = self._pipes.to(peer)
        while True:
            try:
                os.write(pipe, record)
                return
            except BlockingIOError:
                select.select([], [pipe], [])


class HostGroup(Group):
    """A group whose members are on several hosts: each host has a copy of its file, in which the
    parents repeat what members elsewhere write. Tensors go by gloo or NCCL."""

    def __init__(
        self, path: str, members: Any, rank: int, waiting: Any, transport: Any, left: Any,
        network: Network,
    ):  # fmt: skip
        super().__init__(path, members, rank, waiting, transport, left)
        self._write = waiting.write
        _, number, first = os.path.basename(path).split("-")
        self._name = int(number), int(first), len(self._memory)
        firsts = {network.host_of[member]: member for member in reversed(members)}
        firsts.pop(network.host_of[rank])
        self._elsewhere = list(firsts.values())  # a member on each of the other hosts

    def register_call(self, sequence: int, call: Call) -> None:
        super().register_call(sequence, call)
        self._show(self._call(self.place, sequence), CALL.size)

    def _arrive(self, time: float | None) -> None:
        super()._arrive(time)
        self._show((self._places[self.place] + PHASE) * 8, CELL)

    def _show(self, at: int, length: int) -> None:
        record = shown(*self._name, at, self._memory[at : at + length])
        for member in self._elsewhere:
            self._write(member, record)


class Inside:
    """A transport of this host's ranks, counted from 0, addressed by their numbers in the run."""

    device = None

    def __init__(self, transport: Transport, first: int):
        self.name, self.pieces, self.reaches = transport.name, transport.pieces, transport.reaches
        self.release = transport.release
        self._transport, self._first = transport, first

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        return self._transport.expose(dst - self._first, slot, wire)

    def pull(self, src: int, slot: int, address: int, target: torch.Tensor) -> None:
        self._transport.pull(src - self._first, slot, address, target)

    def among(self, members: Collection[int]) -> Transport:
        return self


class ByHost:
    """The transport of messages: that of the host between its ranks, gloo between hosts."""

    pieces = reaches = False
    device = None

    def __init__(self, inside: Inside, between: Gloo, near: frozenset[int]):
        self.name = f"{inside.name} in a host, gloo between hosts"
        self._inside, self._between, self._near = inside, between, near
        self._far: set[int] = set()  # slots of messages to other hosts

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        if dst in self._near:
            return self._inside.expose(dst, slot, wire)
        self._far.add(slot)
        return self._between.expose(dst, slot, wire)

    def pull(self, src: int, slot: int, address: int, target: torch.Tensor) -> None:
        transport = self._inside if src in self._near else self._between
        transport.pull(src, slot, address, target)

    def release(self, slot: int) -> None:
        if slot in self._far:
            self._far.discard(slot)
            self._between.release(slot)
        else:
            self._inside.release(slot)

    def among(self, members: Collection[int]) -> Transport:
        """The host's own transport if all members are on it."""
        return self._inside if self._near.issuperset(members) else self


class NearBoard:
    """The states of this host's ranks, counted from 0."""

    def __init__(self, board: Board, first: int, ranks: int):
        self.ranks = ranks
        self._board, self._first = board, first

    def get(self, rank: int, cell: int) -> int:
        return self._board.get(self._first + rank, cell)

    def put(self, rank: int, cell: int, value: int) -> None:
        self._board.put(self._first + rank, cell, value)
