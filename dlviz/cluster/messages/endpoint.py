"""The endpoint of a rank's messages: the parts of its process that they go through.

    isend    outstanding   gives it a slot        irecv    matching    finds its header
             transport     exposes its bytes               transport   takes its bytes
             pipes         carry its header                buffers     hold them, if they must wait
             waiting       until it is completed           board       has its completion flag

`pacing` says when each happens on a paced run, `recorder` and `log` what the Trace shows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlviz.cluster.control.board import Board
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.pipes import Pipes
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.messages.buffers import BufferPool, OutstandingSends
from dlviz.cluster.recording.log import Log
from dlviz.trace.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Of one rank in one group. All groups of a rank share the parts."""

    group: str
    rank: int
    board: Board
    pipes: Pipes
    matching: Matching
    waiting: Waiting
    transport: Any  # a Transport; a DeviceTransport, where messages come on GPUs
    outstanding: OutstandingSends
    buffers: BufferPool
    pacing: Any
    recorder: Recorder
    log: Log
