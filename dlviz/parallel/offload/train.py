"""Training with the host as memory: the update rule, or all parameters too, are on the host.

    optimizer    compute |forward|--backward--|wait   |forward|      the host averages and updates
                 d2h             |2|1|0|                             a layer while backward goes on
                 host              |2 |1 |0 |
                 h2d                          |0|1|2|

    late         compute |forward|--backward--|forward|--backward--|  with the gradients of the step
                 d2h             |2|1|0|              |2|1|0|         before: a step to hide behind
                 host                         |2 |1 |0 |

    stream       compute | |0|1|2|-2-|-1-|-0-|       only prefetch + 1 layers are on the device
                 h2d     |0|1|2|  |1|0|
                 d2h                 |2| |1| |0|

Source: J. Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021
(its delayed parameter update is `late`); S. Rajbhandari et al., "ZeRO-Infinity", SC 2021. In
PyTorch: torch.distributed.fsdp.CPUOffloadPolicy.
"""

from __future__ import annotations

import copy
from typing import Unpack

from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.machine.topology import require
from dlviz.models.mean_of import in_step
from dlviz.parallel.offload.arena import arenas
from dlviz.parallel.offload.layers import HostLayer, parameters_by_layer
from dlviz.parallel.offload.offloaded import Offloaded
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.replicas import start_alike
from dlviz.parallel.step.sharded_step import Loss, Weight, counting, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule, Moves, as_rule

HOW = ("optimizer", "late", "stream")
PRECISIONS = ("float32", "bfloat16")


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "adam",
    *,
    how: str = "optimizer",
    prefetch: int = 1,
    device_bytes: int | None = None,
    host_bytes: int | None = None,
    bandwidth: float | None = None,
    precision: str = "float32",
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train with the update rule on the host: as `data.train`.

    `how`: "optimizer" (gradients go down, new parameters up); "late" (the same, each update a step
    late: w_(t+1) = w_t - lr g_(t-1)); "stream" (the parameters are on the host too, and come layer
    by layer into prefetch + 1 buffers, forward and backward). Gradients that wait to go down have
    prefetch + 1 buffers as well. `device_bytes` and `host_bytes` are the capacities of the two
    memories, None for as much as there is; buffers of the model and labels do not count.
    `bandwidth`, bytes/s of either direction of the link, None for as fast as memory is copied; a
    paced run needs one. `precision` "float32" leaves the model's dtypes, "bfloat16" computes in
    that and updates the model's own on the host.

    The rule sees each layer on its own (one made of parameters makes an optimizer a layer). With
    `clip` no layer is updated before the last has its gradients.

    The Result has `bytes_up` and `bytes_down` (copied in all steps), `device_peak`, `host_peak`
    (bytes) and `layers_on_device` (the most at a time), each of this rank.

    Raises ValueError for what does not fit into a memory (how many bytes are missing, who holds
    how many), an unknown `how` or `precision`, a prefetch below 0, a bandwidth of 0, and where the
    device reads a tensor that lies on the host.

    Cost a step: 4 bytes a parameter up and 4 down, 2 and 2 in bfloat16; "stream" twice up, but for
    the last layer, which stays for its backward. An all-reduce by the hosts.
    """
    _check(how, precision, prefetch, device_bytes, host_bytes, bandwidth, comm)
    training = Training(
        comm, model, rule, lr, options, loss, weight,
        whole=lambda: copy.deepcopy(model).to(comm.device) if comm.rank == 0 else None,
    )  # fmt: skip
    if not training.parameters:
        raise ValueError("the model has no parameter to train: set requires_grad of one.")
    start_alike(comm, model)
    device, host = arenas(comm, device_bytes, host_bytes)
    layers = [
        HostLayer(named, device, host, low=precision == "bfloat16")
        for named in parameters_by_layer(model)
    ]
    for layer in layers:
        layer.moves = Moves(copy.deepcopy(as_rule(rule, lr)), None, options.get("lr_schedule"))
        with host:
            layer.moves.bind(layer.masters)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(comm.device))
    weight = counting(loss, weight)
    of_batches, of_forwards = (rows, rows) if weight is rows else in_step(weight)
    net = Offloaded(
        comm, model, layers, device, host, of_forwards,
        how=how, prefetch=prefetch, bandwidth=bandwidth, clip=options.get("clip"),
    )  # fmt: skip
    try:
        result = training.run(
            batches, lambda share: None, net.end, net, of_batches, learn=net.learn
        )
    finally:
        net.remove_hooks()
    result |= {
        "bytes_up": net.up.nbytes, "bytes_down": net.down.nbytes, "device_peak": device.peak,
        "host_peak": host.peak, "layers_on_device": net.stream.most,
    }  # fmt: skip
    return result


def _check(
    how: str,
    precision: str,
    prefetch: int,
    device_bytes: int | None,
    host_bytes: int | None,
    bandwidth: float | None,
    comm: Comm,
) -> None:
    """Raise ValueError for an argument that cannot be."""
    if how not in HOW:
        raise ValueError(f"how={how!r} is not known: use 'optimizer', 'late' or 'stream'.")
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not known: use 'float32' or 'bfloat16'.")
    check_counts(0, prefetch=prefetch)
    check_counts(device_bytes=device_bytes, host_bytes=host_bytes)
    if bandwidth is not None:
        require("offload", "bandwidth", bandwidth, zero=False, infinite=False)
    elif comm.machine is not None:
        raise ValueError("a paced run needs bandwidth=, the bytes/s between host and device.")
