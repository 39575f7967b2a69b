"""Tensor parallelism: one layer cut over ranks, as Megatron-LM cuts it.

conjugate.py     f and g, the communication of a cut layer: read it first
linear.py        column-parallel (partition output) and row-parallel (reduce output) layers
one_layer.py     a training step of one layer in three forms: what is sent and held
mlp.py           a Transformer's MLP, and the naive one that gathers after each product
attention.py     self-attention by heads, also with shared keys and values
embedding.py     the vocabulary-parallel embedding, whose weight is the output layer's too
cross_entropy.py the loss of logits that are cut along the vocabulary
transformer.py   a Transformer made of these, with or without sequence parallelism
cut_parameter.py a parameter of which torch's clip_grad_norm_ must not take the norm
parameters.py    from a whole model's state and back, partial gradients, the norm of all gradients
regather.py      what sequence parallelism saves of a product's input
product.py       the block of a layer's product on a rank, and its place in the whole
checks.py        what must be equal on all ranks
"""

from dlviz.parallel.tensor.attention import ParallelAttention
from dlviz.parallel.tensor.cross_entropy import parallel_cross_entropy
from dlviz.parallel.tensor.embedding import VocabularyParallelEmbedding
from dlviz.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear
from dlviz.parallel.tensor.mlp import NaiveMLP, ParallelMLP
from dlviz.parallel.tensor.one_layer import layer_steps
from dlviz.parallel.tensor.parameters import add_partial_gradients, clip_gradients, whole_state
from dlviz.parallel.tensor.transformer import ParallelTransformer

__all__ = [
    "ColumnParallelLinear",
    "NaiveMLP",
    "ParallelAttention",
    "ParallelMLP",
    "ParallelTransformer",
    "RowParallelLinear",
    "VocabularyParallelEmbedding",
    "add_partial_gradients",
    "clip_gradients",
    "layer_steps",
    "parallel_cross_entropy",
    "whole_state",
]
