"""Rounds of federated averaging against Flower's simulation of the same rounds; secure sums;
epsilon.

Both train ten clients on the digits, E = 5, B = 10, an MLP 64-32-10: ours in one process beside the
server's, by the very `federated.train` that lab 12 runs, Flower's as its simulation does it, each
client a call of an actor. Runs of both take turns; what counts is the seconds of a round after the
first, so neither start-up counts. dlviz does not need Flower: without it its row says what to
install.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.datasets import digits
from dlviz.federated import epsilon, partition, train
from dlviz.federated.secure import secure_sum
from dlviz.models import MLP

CLIENTS, ROUNDS = 10, 8
WIDTHS = 64, 32, 10
EPOCHS, BATCH, LR = 5, 10, 0.1
MANY, SHARE = 1000, 0.1
EXAMPLES = 20_000  # of a thousand clients
SUMMED, LENGTHS, SUMS = 8, (2_410, 100_000), 6
MISSING = (
    "Flower is not installed: pip install 'flwr[simulation]' ray, in an environment of its own"
)
NO_PEER = "no peer: Flower's SecAgg is a part of its training rounds, no call adds vectors alone"
NAN = float("nan")


def dealt(clients: int, examples: int | None = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    images, labels = digits("train")
    if examples is not None:
        images, labels = partition.resample(images, labels, examples)
    parts = partition.identical(labels, clients)
    return [(images[part], labels[part]) for part in parts]


# -- a round -------------------------------------------------------------------------------------
def ours(clients: Any, **how: Any) -> float:
    """Seconds of a round."""
    options = {"rounds": ROUNDS, "epochs": EPOCHS, "batch": BATCH, "lr": LR, **how}
    run = launch(train, 2, args=(MLP(WIDTHS), clients), kwargs=options, timeout=300)
    first, *others = run.results[0]["rounds"]
    return median(each.seconds for each in others)


def flower(clients: Any) -> float:
    """The same, of Flower's simulation: from the choice of the clients to the new weights."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    begun, took = [], []

    class Timed(FedAvg):
        def configure_train(self, *args: Any, **how: Any) -> Any:
            begun.append(perf_counter())
            return super().configure_train(*args, **how)

        def aggregate_train(self, *args: Any, **how: Any) -> Any:
            found = super().aggregate_train(*args, **how)
            took.append(perf_counter() - begun[-1])
            return found

    client, server = ClientApp(), ServerApp()

    @client.train()
    def on_client(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        net = MLP(WIDTHS)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        inputs, labels = clients[int(context.node_config["partition-id"])]
        rule = torch.optim.SGD(net.parameters(), LR)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(labels)).split(BATCH):
                rule.zero_grad()
                nn.functional.cross_entropy(net(inputs[rows]), labels[rows]).backward()
                rule.step()
        metrics = MetricRecord({"num-examples": len(labels)})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    @server.main()
    def on_server(grid: Grid, context: Context) -> None:
        strategy = Timed(fraction_evaluate=0.0, min_available_nodes=len(clients))
        strategy.start(grid, ArrayRecord(MLP(WIDTHS).state_dict()), num_rounds=ROUNDS)

    for name in ("flwr", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)
    backend: Any = {
        "init_args": {"include_dashboard": False, "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, client, len(clients), backend_config=backend)
    return median(took[1:])


# -- a secure sum --------------------------------------------------------------------------------
def summing(comm: Any, length: int) -> list[float]:
    """Seconds of each secure sum but the first, on the slowest rank."""
    vector, took = torch.full((length,), comm.rank / 16), []
    for _ in range(SUMS):
        comm.barrier()
        begun = perf_counter()
        secure_sum(comm, vector, threshold=SUMMED // 2 + 1, clip=1.0)
        slowest = torch.tensor([perf_counter() - begun], dtype=torch.float64)
        comm.all_reduce(slowest, "max")
        took.append(slowest.item())
    return took[1:]


def stated(what: str, seconds: float, most: float | None = None, remark: str = "") -> Row:
    """A row without a peer."""
    return Row(what, seconds, NAN, NAN, most=most, remark=remark)


def rows() -> list[Row]:
    ten, what = dealt(CLIENTS), f"round of {CLIENTS} clients, beside Flower's"
    if find_spec("flwr") and find_spec("ray"):
        times = take_turns({"ours": lambda: ours(ten), "flower": lambda: flower(ten)})
        found = [compare(what, times["ours"], times["flower"], 10.0)]
    else:
        times = take_turns({"ours": lambda: ours(ten)})
        found = [stated(what, median(times["ours"]), remark=MISSING)]
    many = dealt(MANY, EXAMPLES)
    took = ours(many, fraction=SHARE)
    found.append(stated(f"round of {MANY:,} clients, {SHARE:.0%} of them asked", took, most=1.0))
    for length in LENGTHS:
        took = median(launch(summing, SUMMED + 1, args=(length,), timeout=300).results[0])
        what = f"secure sum of {SUMMED} clients x {length:,} values"
        found.append(stated(what, took, remark=NO_PEER))
    begun = perf_counter()
    epsilon(1.5, 0.04, 2250, 1e-5)
    found.append(stated("epsilon of 2,250 rounds", perf_counter() - begun, most=0.2))
    return found
