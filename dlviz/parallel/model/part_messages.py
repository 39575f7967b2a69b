"""The messages between ranks that each have a part of one model, by name.

activations          the output of a part, to the rank of the part after it     tag 0
gradients            of that output, back                                       tag 1
parameter_gradients  of a parameter that ranks share, to the first of them      tag 2
parameters           its new value, back                                        tag 3
"""

from __future__ import annotations

from typing import Any

import torch

from dlviz.cluster import Comm

SENT = ("activations", "gradients", "parameter_gradients", "parameters")  # the place is the tag


class Exchange:
    """Sends and receives by name, and counts in `nbytes` what this rank has sent of each."""

    def __init__(self, comm: Comm):
        self.comm = comm
        self.nbytes = {what: 0 for what in SENT}
        self._sends: list[Any] = []

    def send(self, what: str, tensor: torch.Tensor, rank: int) -> None:
        """Start to send; `finish` waits until everything has gone."""
        self._sends.append(self.comm.isend(tensor, rank, SENT.index(what)))
        self.nbytes[what] += tensor.nbytes

    def receive(self, what: str, rank: int) -> torch.Tensor:
        tag = SENT.index(what)
        tensor = self.comm.probe(rank, tag)  # an empty tensor of the message's shape
        self.comm.recv(tensor, rank, tag)
        return tensor

    def finish(self) -> None:
        self.comm.wait_sent(self._sends)
        self._sends = []

    def totals(self) -> dict[str, int]:
        """The bytes that all ranks have sent, by name. All ranks must call it."""
        sent = torch.tensor([*self.nbytes.values()])
        self.comm.all_reduce(sent)
        return {f"bytes_of_{what}": n for what, n in zip(SENT, sent.tolist(), strict=True)}
