"""The endpoint of a rank's messages: the parts of its process that they go through.

    isend    outstanding   gives it a tick        irecv    matching    finds its envelope
             transport     shows its bytes                 transport   takes its bytes
             pipes         carry its envelope              buffers     hold them, if they must wait
             waiting       until it is ticked off          board       ticks it off

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
    """Of one rank in one group. The parts are the rank's, which its groups have in common."""

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
