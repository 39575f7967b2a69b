"""What ranks send for one linear layer Y = X W, by the form in which they cut it.

    B rows of X (a Transformer's batch x tokens), C_in inputs, C_out outputs; n ranks:

    form               a rank's own         forward        backward      gradient sync
    data               rows of X and Y      0              0             2 C_out C_in
    partition_output   columns of W and Y   B C_in         B C_in        0
    reduce_output      rows of W, cols of X 2 B C_out      0             0

Elements as the lecture counts them: an all-gather or a reduce-scatter of N elements is N, an
all-reduce, which is both, 2 N. A rank sends (n-1)/n of them. Partition output gathers X, of which a
rank has a part, and reduce-scatters its gradient; Megatron-LM has X whole on all ranks, gathers
nothing and all-reduces the gradient: 0 and 2 B C_in, the same in all. The lecture's summary drops
every factor of 2 and compares C_out C_in with B C_in and B C_out. Both agree where data parallelism
sends less: than partition output for B > C_out, than reduce output for B > C_in.

Source: CMU 15-418/618, lecture "Model & Pipeline Parallelism"; Shoeybi et al., "Megatron-LM", 2019.
"""

from __future__ import annotations

from dlviz.counts import check_counts, closed_form, of_numbers

FORMS = ("data", "partition_output", "reduce_output")


@of_numbers
def layer_elements(form: str, batch: int, inputs: int, outputs: int) -> tuple[int, int, int]:
    """Elements of the lecture's table, (forward, backward, gradient sync), for `batch` rows.

    Raises ValueError for an unknown form, or a size below 1."""
    check_counts(batch=batch, inputs=inputs, outputs=outputs)
    if form == "data":
        return 0, 0, 2 * outputs * inputs
    if form == "partition_output":
        return batch * inputs, batch * inputs, 0
    if form == "reduce_output":
        return 2 * batch * outputs, 0, 0
    raise ValueError(f"form={form!r} is not known: use {', '.join(map(repr, FORMS))}.")


@closed_form
def layer_bytes(
    form: str, batch: int, inputs: int, outputs: int, ranks: int, itemsize: int = 4
) -> float:
    """Bytes that each of `ranks` sends for the layer in a training step, of elements of `itemsize`
    bytes; a mean over the ranks where the tensors do not divide.

    Raises ValueError as `layer_elements`, and for fewer than 1 rank."""
    check_counts(ranks=ranks, itemsize=itemsize)
    return sum(layer_elements(form, batch, inputs, outputs)) * itemsize * (ranks - 1) / ranks
