"""Federated learning: clients that keep their data, and a server that may not be honest.

privacy.py     how little a round says about one client: clipping, noise, and their epsilon
inversion.py   what a server reads out of an update that nobody protected
secure/        the sum of the clients' vectors, of which the server learns nothing else
attacks.py     what a dishonest client sends
robust.py      how a server combines updates some of which are false

The names are here at once; torch loads with the first module that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlviz.federated import attacks, inversion, privacy, robust, secure
    from dlviz.federated.privacy import epsilon

__all__ = ["attacks", "epsilon", "inversion", "privacy", "robust", "secure"]


def __getattr__(name: str) -> Any:
    if name == "epsilon":
        return import_module("dlviz.federated.privacy").epsilon
    if name in __all__:
        return import_module(f"dlviz.federated.{name}")
    raise AttributeError(f"module 'dlviz.federated' has no attribute {name!r}")
