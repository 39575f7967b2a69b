"""The factors of linear layers' gradients, taken while a model runs (sufficient_factors.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dlviz.parallel.step.hooks import Hook, writes_gradients

Factors = tuple[torch.Tensor, torch.Tensor]  # inputs (K, N), gradients of the outputs (K, M)


class LinearFactors:
    """Saves the factors of the linear layers of `model` from now on, and keeps autograd from
    multiplying them: `.grad` of a weight holds only what it has got from other operations."""

    def __init__(self, model: nn.Module):
        self._saved: dict[nn.Parameter, list[Factors]] = {}
        self._weights: dict[nn.Module, nn.Parameter] = {}  # of the layers that are running
        for layer in model.modules():
            # Another forward may do other things with the weight.
            if isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward:
                layer.register_forward_pre_hook(Hook(self._start_forward))
                end = Hook(self._end_forward)
                layer.register_forward_hook(end, prepend=True, with_kwargs=True, always_call=True)

    def _start_forward(self, layer: nn.Module, inputs: Any) -> None:
        weight = layer._parameters.get("weight")  # None where the layer computes it from others
        if weight is not None and weight.requires_grad and torch.is_grad_enabled():
            self._weights[layer] = weight
            layer._parameters["weight"] = weight.detach()  # pyright: ignore[reportArgumentType]

    def _end_forward(self, layer: nn.Module, inputs: Any, keywords: Any, output: Any) -> Any:
        weight = self._weights.pop(layer, None)
        if weight is None:
            return None
        layer._parameters["weight"] = weight
        if output is None:  # the forward failed
            return None
        x = inputs[0] if inputs else keywords["input"]
        return _Save.apply(output, x.detach(), weight, self._saved)

    def take(self) -> dict[nn.Parameter, Factors]:
        """The factors by weight of the backward passes since the last call: the rows of all calls
        of all layers that have the weight."""
        found = {
            weight: (torch.cat([x for x, _ in calls]), torch.cat([g for _, g in calls]))
            for weight, calls in self._saved.items()
        }
        self._saved.clear()
        return found


class _Save(torch.autograd.Function):
    """Forward: the output of a linear layer, as it is. Backward: the output's gradient, as it is,
    which is saved with the layer's input; none for the weight."""

    @staticmethod
    def forward(ctx: Any, output: Any, x: Any, weight: Any, saved: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.weight, ctx.saved = weight, saved
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,), (x,), weight = gradients, ctx.saved_tensors, ctx.weight
        if torch.is_grad_enabled():
            raise ValueError(
                "create_graph=True asks for gradients with a graph, and the factors of a linear "
                "layer have none: train by another strategy, as ddp."
            )
        if writes_gradients([weight]):  # (B, T, N) is B T rows
            pair = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
            factors = tuple(part.to(weight.dtype) for part in pair)
            ctx.saved.setdefault(weight, []).append(factors)
        return gradient, None, None, None
