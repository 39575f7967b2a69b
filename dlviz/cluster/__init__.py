"""Real ranks: processes with torch.distributed between them, started from a cell and watched
while they run."""

from dlviz.cluster.parent.start import warm_up

warm_up()  # before torch is imported here: the fork server imports it at the same time

from dlviz.cluster.comm import Comm  # noqa: E402
from dlviz.cluster.errors import (  # noqa: E402
    DeadlockError,
    RankError,
    RankLost,
    RunError,
    RunInterrupted,
    RunTimeout,
)
from dlviz.cluster.link import LinkCost, measure_link  # noqa: E402
from dlviz.cluster.network import measure_network  # noqa: E402
from dlviz.cluster.parent.launch import Run, launch  # noqa: E402
from dlviz.cluster.parent.remote import Lost  # noqa: E402
from dlviz.cluster.stuck.waits import Wait  # noqa: E402

__all__ = [
    "Comm", "DeadlockError", "LinkCost", "Lost", "RankError", "RankLost", "Run", "RunError",
    "RunInterrupted", "RunTimeout", "Wait", "launch", "measure_link", "measure_network",
]  # fmt: skip
