"""Which hosts a run is on, and how one of them reaches the others."""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any

import torch
import torch.distributed as dist

WAIT = 60.0  # s for what another host writes into the store
PATIENCE = 10.0  # s for a connection to be made


@dataclass(frozen=True)
class Host:
    """One host: its name, the address at which the others reach it, the interface that has this,
    and its ranks."""

    name: str
    address: str
    interface: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Store:
    """Where torchrun's store is, and under which prefix a run's own keys are."""

    address: str
    port: int
    prefix: str

    def open(self) -> Any:
        """Connect to it. ValueError if that fails."""
        name = socket.gethostname()
        try:
            socket.create_connection((self.address, self.port), PATIENCE).close()
            store = self._connect()
        except OSError as error:
            raise ValueError(
                f"{name} cannot reach torchrun's store at {self.address}, port {self.port} "
                f"({error}): give torchrun on the first host --local-addr=ADDRESS, the one at "
                "which the others reach it, and let its firewall pass them."
            ) from None
        except dist.DistError as error:
            raise ValueError(
                f"{name} has reached {self.address}, port {self.port}, and found no store of "
                f"torchrun there ({first_line(error)}): choose another port, which is free."
            ) from None
        return dist.PrefixStore(self.prefix, store)  # pyright: ignore[reportPrivateImportUsage]

    def _connect(self) -> Any:
        """Connect on a thread: if another program has the port and stays silent, torch waits for
        ever."""
        made: SimpleQueue[Any] = SimpleQueue()
        waits = timedelta(seconds=WAIT)

        def connect() -> None:
            try:
                made.put(dist.TCPStore(self.address, self.port, is_master=False, timeout=waits))  # pyright: ignore[reportPrivateImportUsage]
            except dist.DistError as error:
                made.put(error)

        threading.Thread(target=connect, name="dlviz store", daemon=True).start()
        try:
            found = made.get(timeout=PATIENCE)
        except Empty:
            found = dist.DistStoreError(f"it has said nothing for {PATIENCE:g} s")
        if isinstance(found, Exception):
            raise found
        return found


@dataclass(frozen=True)
class Network:
    """The hosts of a run as the one with number `own` sees them. `ahead` is its clock less that of
    host 0, in ns: for what a rank reads while it runs (the Trace is more exact)."""

    hosts: tuple[Host, ...]
    own: int
    store: Store
    ahead: int = 0

    @property
    def here(self) -> Host:
        return self.hosts[self.own]

    @cached_property
    def near(self) -> frozenset[int]:
        """The ranks of this host."""
        return frozenset(self.here.ranks)

    @cached_property
    def host_of(self) -> dict[int, int]:
        """The number of each rank's host."""
        return {rank: number for number, host in enumerate(self.hosts) for rank in host.ranks}

    def name_of(self, rank: int) -> str:
        return self.hosts[self.host_of[rank]].name

    def join_group(self, rank: int) -> Any:
        """Make torch's process group of all ranks, on this host's interface; its store."""
        os.environ["GLOO_SOCKET_IFNAME"] = self.here.interface
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={self.here.interface}")
        store = self.store.open()
        dist.init_process_group(
            "gloo",
            store=store,
            rank=rank,
            world_size=len(self.host_of),
            timeout=timedelta(days=1),
        )
        store.set_timeout(timedelta(days=1))  # a group is made when its last rank joins
        return store


def first_line(error: Exception) -> str:
    """torch's message, without the stack that it appends."""
    return str(error).partition("\n")[0]


def versions() -> dict[str, str]:
    """What has to be the same on all hosts."""
    python = ".".join(map(str, sys.version_info[:3]))
    own = sys.modules["dlviz"].__version__
    return {"dlviz": own, "torch": str(torch.__version__), "Python": python}
