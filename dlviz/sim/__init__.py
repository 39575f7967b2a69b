"""What an operation or a whole schedule would cost, without running it. No torch here."""

from __future__ import annotations

import warnings
from typing import Any

from dlviz.sim.activations import activation_bytes, saved_activations
from dlviz.sim.collective import collective
from dlviz.sim.compression import (
    code_bytes,
    communication_share,
    compressed_seconds,
    expected_union,
)
from dlviz.sim.convolution import (
    channel_filter_words,
    halo_cells,
    halo_rows,
    one_weird_trick,
    segmented_share,
    weird_trick_wins_below,
)
from dlviz.sim.costs import collective_seconds
from dlviz.sim.data_parallel import Layer, data_parallel, mlp_layers
from dlviz.sim.engine import Costs, simulate
from dlviz.sim.layer_costs import (
    LayerCost,
    NetCosts,
    convolution_cuts,
    cut_name,
    cut_seconds,
    layer_cost,
    net_costs,
    switch_cost,
)
from dlviz.sim.layer_paths import best_single, cheapest_path
from dlviz.sim.layer_shapes import NETS, LayerShape, convolution_share, net_layers
from dlviz.sim.layers import layer_bytes, layer_elements
from dlviz.sim.matmul import best_grid, matmul_lower_bound, matmul_table, matmul_words
from dlviz.sim.mesh import MeshStep, mesh_groups, mesh_step
from dlviz.sim.offload import stream_seconds, tokens_to_hide
from dlviz.sim.placement import (
    Devices,
    Graph,
    bounds,
    count,
    play,
    search,
    seconds_of,
    upward_ranks,
)
from dlviz.sim.planner import plans, why_none_fits
from dlviz.sim.recompute import best_segments, recompute_peak
from dlviz.sim.scaling import data_parallel_seconds, scaling_curves
from dlviz.sim.strategies import strategy
from dlviz.sim.sufficient_factors import factor_bytes, factors_win_below
from dlviz.sim.transformer_size import (
    TransformerShape,
    transformer_flops,
    transformer_parameters,
)
from dlviz.sim.workspace import best_cut, workspace_bytes
from dlviz.sim.zero import deepspeed_bytes, largest_model, zero_bytes, zero_traffic

__all__ = [
    "NETS",
    "Costs",
    "Devices",
    "Graph",
    "Layer",
    "LayerCost",
    "LayerShape",
    "MeshStep",
    "NetCosts",
    "TransformerShape",
    "activation_bytes",
    "best_cut",
    "best_grid",
    "best_segments",
    "best_single",
    "channel_filter_words",
    "cheapest_path",
    "bounds",
    "code_bytes",
    "collective",
    "collective_seconds",
    "communication_share",
    "compressed_seconds",
    "convolution_cuts",
    "convolution_share",
    "cut_name",
    "cut_seconds",
    "count",
    "data_parallel",
    "data_parallel_seconds",
    "deepspeed_bytes",
    "expected_union",
    "factor_bytes",
    "factors_win_below",
    "halo_cells",
    "halo_rows",
    "largest_model",
    "layer_bytes",
    "layer_cost",
    "layer_elements",
    "matmul_lower_bound",
    "matmul_table",
    "matmul_words",
    "mesh_groups",
    "mesh_step",
    "mlp_layers",
    "net_costs",
    "net_layers",
    "one_weird_trick",
    "plans",
    "play",
    "recompute_peak",
    "saved_activations",
    "search",
    "seconds_of",
    "scaling_curves",
    "segmented_share",
    "simulate",
    "strategy",
    "stream_seconds",
    "switch_cost",
    "tokens_to_hide",
    "transformer_flops",
    "transformer_parameters",
    "weird_trick_wins_below",
    "upward_ranks",
    "why_none_fits",
    "workspace_bytes",
    "zero_bytes",
    "zero_traffic",
]


def __getattr__(name: str) -> Any:
    if name != "kept_activations":
        raise AttributeError(f"module 'dlviz.sim' has no attribute {name!r}")
    warnings.warn("kept_activations is saved_activations now.", DeprecationWarning, stacklevel=2)
    return saved_activations
