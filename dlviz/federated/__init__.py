"""Federated learning: clients that keep their data, and a server that may not be honest.

secure/   the sum of the clients' vectors, of which the server learns nothing else

The names are here at once; torch loads with the first module that needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlviz.federated import secure

__all__ = ["secure"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return import_module(f"dlviz.federated.{name}")
    raise AttributeError(f"module 'dlviz.federated' has no attribute {name!r}")
