"""Real ranks: processes connected by torch.distributed, started from a cell and watched while they
run. Other layers import only the names below."""

from dlviz.cluster.parent.start import warm_up

warm_up()  # before torch is imported here: the fork server imports it at the same time

# ruff: noqa: E402
from dlviz.cluster.control.form import CODES, DTYPES, dtype_name, form_of
from dlviz.cluster.errors import (
    DeadlockError,
    RankError,
    RankLost,
    RunError,
    RunInterrupted,
    RunTimeout,
)
from dlviz.cluster.groups.membership import Mesh, alone, grid_of
from dlviz.cluster.groups.saved import Saved
from dlviz.cluster.measure.link import LinkCost, link_cost, measure_link
from dlviz.cluster.measure.network import NetworkCost, measure_network, network_cost
from dlviz.cluster.memory import Amounts, Storages, label, pack_saved, unpack_saved
from dlviz.cluster.messages.comm import Comm
from dlviz.cluster.messages.lanes import Handle, Lane
from dlviz.cluster.operations import REDUCE, check_rank, check_tensor, reduction, renamed
from dlviz.cluster.parent.arguments import pack_worker, worker_name
from dlviz.cluster.parent.launch import Run, launch
from dlviz.cluster.parent.remote import Lost
from dlviz.cluster.recording import results
from dlviz.cluster.stuck.waits import RECEIVES, SENDS, Wait, show_line
from dlviz.cluster.transport.choose import place_of_files
from dlviz.cluster.warm import rehearsed

__all__ = [
    "Amounts", "Comm", "DeadlockError", "LinkCost", "Lost", "RankError", "RankLost", "Run",
    "RunError", "RunInterrupted", "RunTimeout", "Storages", "Wait", "label", "launch",
    "measure_link", "measure_network",
    # for the layers built on it
    "CODES", "DTYPES", "Handle", "Lane", "Mesh", "NetworkCost", "RECEIVES", "REDUCE",
    "SENDS", "Saved", "alone", "check_rank", "check_tensor", "dtype_name", "form_of", "grid_of",
    "link_cost", "network_cost", "pack_saved", "pack_worker", "place_of_files", "reduction",
    "rehearsed", "renamed", "results", "show_line", "unpack_saved", "worker_name",
]  # fmt: skip
