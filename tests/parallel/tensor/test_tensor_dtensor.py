"""Layers cut over ranks beside torch's DTensor, on the same processes and the same weights."""

from __future__ import annotations

import copy

import torch
from torch import nn

import dlviz
from dlviz.models.transformer import Block, FeedForward
from dlviz.parallel.tensor import ParallelMLP, add_partial_gradients
from dlviz.parallel.tensor.parameters import axis_parameters, load_whole
from dlviz.parallel.tensor.transformer import ParallelBlock

H, HEADS, KV, B, S = 16, 4, 2, 2, 8


def torchs(comm, whole, sequence_parallel):
    """`parallelize_module` of a copy of the plain module."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    net = copy.deepcopy(whole)
    tokens = Shard(1) if sequence_parallel else Replicate()  # what lies between the layers
    entered = {"input_layouts": tokens, "desired_input_layouts": Replicate()}
    down = RowwiseParallel(output_layouts=tokens)
    if isinstance(net, FeedForward):
        plan = {"": PrepareModuleInput(**entered), "up": ColwiseParallel(), "down": down}
    else:
        plan = {
            "attention": PrepareModuleInput(**entered),
            **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
            "attention.output": down,
            "mlp": PrepareModuleInput(**entered),
            "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=tokens),
        }
        if sequence_parallel:
            local = SequenceParallel(use_local_output=True)
            plan |= {"norm1": local, "norm2": local}
        net.attention.heads //= comm.size
        net.attention.kv_heads //= comm.size
    return parallelize_module(net, init_device_mesh("cpu", (comm.size,)), plan)


def ours(comm, whole, sequence_parallel):
    if isinstance(whole, FeedForward):
        net: nn.Module = ParallelMLP(comm, H, 4 * H, sequence_parallel=sequence_parallel)
    else:
        sizes = H, HEADS, KV, 0.0, 0, 0
        net = ParallelBlock(comm, *sizes, sequence_parallel=sequence_parallel)
    net.to(next(whole.parameters()).dtype)
    load_whole(comm, net, whole.state_dict())
    return net


def beside(comm):
    """By case the largest gap between the two, in values, gradients of x and of each parameter."""
    found = {}
    for dtype in (torch.float64, torch.float32):
        for make in (lambda: FeedForward(H, 4 * H), lambda: Block(H, HEADS, KV, 0.0, 0, 0)):
            torch.manual_seed(1)
            whole = make().to(dtype)
            for p in whole.parameters():
                nn.init.normal_(p, std=p.shape[-1] ** -0.5)
            x = torch.randn(B, S, H, dtype=dtype)
            for cut in (False, True):
                name = f"{type(whole).__name__}, {dtype}, {'tokens cut' if cut else 'tokens whole'}"
                nets = ours(comm, whole, cut), torchs(comm, whole, cut)
                outputs, inputs = [], []
                for net in nets:
                    mine = x.chunk(comm.size, 1)[comm.rank] if cut else x
                    inputs.append(mine.clone().requires_grad_())
                    outputs.append(net(inputs[-1]))
                    outputs[-1].square().sum().backward()
                if cut:
                    add_partial_gradients(comm, nets[0])
                gaps = {"y": gap(*outputs), "dx": gap(*(each.grad for each in inputs))}
                for layer, module, key, p, dim, _ in axis_parameters(comm, nets[0]):
                    theirs = nets[1].get_submodule(layer).get_parameter(key).grad
                    if hasattr(theirs, "full_tensor"):
                        theirs = theirs.full_tensor()
                    theirs = theirs if dim is None else module.local(key, theirs)
                    gaps[f"gradient of {layer}.{key}"] = gap(p.grad, theirs)
                found[name] = dtype, gaps
    return found


def gap(one, other):
    return ((one - other).norm() / (1 + other.norm())).item()


def test_values_and_gradients_equal_those_of_torchs_dtensor_with_tokens_whole_and_cut():
    """gloo has all that the DTensors ask of it here: all-reduce, all-gather, reduce-scatter."""
    for found in dlviz.launch(beside, 2).results:
        assert len(found) == 8
        for name, (dtype, gaps) in found.items():
            assert len(gaps) == (6 if name.startswith("Feed") else 18)
            within = 1e-10 if dtype == torch.float64 else 1e-5
            assert not {key: off for key, off in gaps.items() if not off <= within}, name
