"""Y(m, n) = X(m, k) W(k, n), and both gradients, on a grid of ranks over the three dims.

blocks.py     which rank owns what, and how panels travel
grid.py       what the ranks must agree on before they multiply
forms.py      the product by hand, SUMMA, and the two other forms for the gradients

In distributed memory a fully connected layer is "just a distributed matrix-matrix multiplication",
says the lecture, which names SUMMA and COSMA. X is a batch (B, C_in) and W the weights
(C_in, C_out), the transpose of torch's; the forward is Y = X W, the backward two more products.

The ranks form a grid of pm x pk x pn, the last axis fastest. Rank (a, b, c) multiplies block (a, b)
of X by block (b, c) of W; the sum of these over b is block (a, c) of Y. It owns 1/P of each matrix:

    x   columns of block (a, b) of X, cut among the pn ranks that need it   (m/pm, k/pk/pn)
    w   rows of block (b, c) of W, cut among the pm ranks that need it      (k/pk/pm, n/pn)
    y   columns of block (a, c) of Y, cut among the pk ranks that add it    (m/pm, n/pn/pk)

On (pm, 1, pn) this is SUMMA: a rank owns one block of each matrix, and panels of X and W travel.

             W panel: along its column of ranks (axis m)
                      |
    X panel ------ rank (a, c): Y += X panel x W panel       the output stays (stationary Y)
    along its row     |
    (axis n)

    grid          what it is
    (P, 1, 1)     data parallel with gathered weights (FSDP): W travels
    (1, P, 1)     reduce output (row-parallel): parts of Y are added
    (1, 1, P)     partition output (column-parallel): X travels
    (pm, 1, pn)   SUMMA
    (pm, pk, pn)  3D: pk times SUMMA, each on a part of k, and axis k adds up Y

The gradients take the two other forms of SUMMA, in which another matrix is stationary:

    dX = dY W^T   X's blocks stay: panels of W travel, parts of dX are added along axis n
    dW = X^T dY   W's blocks stay: panels of X travel, parts of dW are added along axis m

Where k is whole, Y lies as a next layer on the grid (pm, pn, 1) needs its X: partition output and
then reduce output need no message in between.

Source: R. van de Geijn, J. Watts, "SUMMA: Scalable Universal Matrix Multiplication Algorithm",
1997; M. Schatz, R. van de Geijn, J. Poulson, "Parallel Matrix Multiplication: A Systematic
Journey", 2016 (the three forms, and 3D); B. Van Essen et al., "LBANN: Livermore Big Artificial
Neural Network HPC Toolkit", 2015 (layers by SUMMA); N. Dryden, "Parallelism in Training Deep Neural
Networks", guest lecture at ETH Zurich. Which grid: `dlviz.sim.best_grid`. In PyTorch:
products of DTensors on a DeviceMesh, which gather whole blocks as `by_hand` does.
"""

from dlviz.parallel.summa.blocks import block
from dlviz.parallel.summa.forms import by_hand, multiply

__all__ = ["block", "by_hand", "multiply"]
