"""A network that learns where the groups of a graph run, from the seconds that its placements take.

    policy  --draws-->  placements  --played-->  seconds  ->  reward -sqrt(seconds)
       ^                                                           |
       +------- more of what beat the moving average, less of what did not

    table.py        a table of logits: a row a group      rewards.py    a placement's reward
    attention.py    ColocRL: LSTMs and attention          exact.py      the gradient by enumeration
    reinforce.py    the estimated gradient, and `learn`

Source: A. Mirhoseini et al., "Device placement optimization with reinforcement learning", 2017,
section 3; the estimator is R. J. Williams', "Simple statistical gradient-following algorithms for
connectionist reinforcement learning", 1992.
"""

from dlviz.models.placer.exact import gradient
from dlviz.models.placer.reinforce import POLICIES, Learned, learn

__all__ = ["POLICIES", "Learned", "gradient", "learn"]
