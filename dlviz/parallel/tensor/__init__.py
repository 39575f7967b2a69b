"""Tensor parallelism: one layer cut over ranks, as Megatron-LM cuts it.

conjugate.py     f and g, what a split layer communicates: read it first
linear.py        column-parallel (partition output) and row-parallel (reduce output) layers
mlp.py           a Transformer's MLP, and the naive one that gathers after each product
attention.py     self-attention by heads, also those that share keys and values
regather.py      what sequence parallelism keeps of a product's input
product.py       the product of a layer on a rank, and its place in the whole
agree.py         what all ranks must have alike
"""

from dlviz.parallel.tensor.attention import ParallelAttention
from dlviz.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear
from dlviz.parallel.tensor.mlp import NaiveMLP, ParallelMLP

__all__ = [
    "ColumnParallelLinear",
    "NaiveMLP",
    "ParallelAttention",
    "ParallelMLP",
    "RowParallelLinear",
]
