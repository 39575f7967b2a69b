"""Federated learning: clients that keep their data, and a server that may not be honest.

rounds.py        `train`: rounds of five phases (server.py, client.py, messages.py,
                 round_record.py), then what is still in transit (shutdown.py)
selection.py     1: which clients a round asks
local.py         3: what a client does with the weights (weights.py), or many together (stacked.py)
aggregation.py   5: what the server makes of the updates
arrivals.py      when answers would arrive, for clients that share a process
partition.py     who has which examples (sizes.py: how many of each label, by Dirichlet)
privacy.py       how little a round says about one client: clipping, noise, and their epsilon
                 (accountant.py)
inversion.py     what a server reads out of an unprotected update
secure/          the sum of the clients' vectors; the server learns nothing else
masked_rounds.py 4 and 5 of rounds whose updates arrive as such a sum
attacks.py       what a dishonest client sends
robust.py        how a server combines updates of which some are false
compared.py      several trainings from the same weights, over rates and seeds

Importing the package is cheap: torch loads with the first module that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlviz.federated import attacks, inversion, partition, privacy, robust, secure
    from dlviz.federated.accountant import epsilon
    from dlviz.federated.arrivals import Arrivals
    from dlviz.federated.compared import last_third, received, rounds_to, train_each, tuned
    from dlviz.federated.masked_rounds import Secure
    from dlviz.federated.privacy import Private
    from dlviz.federated.rounds import Round, train

__all__ = [
    "Arrivals", "Private", "Round", "Secure", "attacks", "epsilon", "inversion", "last_third",
    "partition", "privacy", "received", "robust", "rounds_to", "secure", "train", "train_each",
    "tuned",
]  # fmt: skip

# name -> the module that defines it, unless it is a module itself
_HOME = {
    "Arrivals": "arrivals", "Private": "privacy", "Round": "rounds", "Secure": "masked_rounds",
    "epsilon": "accountant", "last_third": "compared", "received": "compared",
    "rounds_to": "compared", "train": "rounds", "train_each": "compared", "tuned": "compared",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"dlviz.federated.{_HOME[name]}"), name)
    if name in __all__:
        return import_module(f"dlviz.federated.{name}")
    raise AttributeError(f"module 'dlviz.federated' has no attribute {name!r}")
