"""The program's `__main__` in its ranks: there pickle looks up what a script or a cell has defined.

A rank's process has not run the script, so `torch.save` of a model whose class is the script's
would not find that class. What comes with the worker is entered in the rank's `__main__`, other
names that are looked up there are fetched, and a process that a rank spawns gets them by value:

    launching process  --with the worker, or when asked-->  rank  --by value-->  a loader's worker
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle

from dlviz.cluster.parent.start import program


def dumps(value: Any) -> bytes:
    """`value`, pickled; what of it the program's `__main__` has by name follows."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    pickler.dump(pickler.seen)  # with what is known by then: these are the same objects
    return file.getvalue()


def loads(parcel: bytes) -> Any:
    """What `dumps` was given. Classes and functions are found in `__main__` from now on."""
    unpickler = pickle.Unpickler(io.BytesIO(parcel))
    value = unpickler.load()
    for name, each in unpickler.load().items():
        vars(sys.modules["__main__"]).setdefault(name, each)
    return value


class _Pickler(cloudpickle.Pickler):
    """`seen` are the classes and functions of `__main__` that it has pickled, by name."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.seen: dict[str, Any] = {}
        self._known = vars(program())

    def reducer_override(self, obj: Any) -> Any:
        if _is_of_main(obj) and self._known.get(obj.__name__) is obj:
            self.seen[obj.__name__] = obj
        return super().reducer_override(obj)


def _is_of_main(value: Any) -> bool:
    return isinstance(value, type | FunctionType) and value.__module__ == "__main__"


class Main(ModuleType):
    """A rank's `__main__`. `fetch` asks the launching process for what its own has."""

    def __init__(self, fetch: Callable[[str], bytes]):
        super().__init__("__main__")
        self.__fetch, self.__rank = fetch, os.getpid()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or os.getpid() != self.__rank:  # a fork has no connection
            raise AttributeError(f"module '__main__' has no attribute {name!r}")
        found = loads(self.__fetch(name))
        if isinstance(found, AttributeError | pickle.PicklingError):
            raise found
        return vars(self).setdefault(name, found)


def settle(fetch: Callable[[str], bytes]) -> None:
    """In a rank: stand in for the program's `__main__`, for pickle and for spawned processes."""
    sys.modules["__main__"] = Main(fetch)
    ForkingPickler.reducer_override = _by_value  # pyright: ignore[reportAttributeAccessIssue]


def _by_value(pickler: Any, value: Any) -> Any:
    """A process that is being spawned has a `__main__` of nothing."""
    if get_spawning_popen() is not None and _is_of_main(value):
        return _entered, (value.__name__, dumps(value))
    return NotImplemented


def _entered(name: str, parcel: bytes) -> Any:
    value = loads(parcel)
    return vars(sys.modules["__main__"]).get(name, value)


def answer(name: str) -> bytes:
    """For a rank that asks: what the program's `__main__` has by that name, or the error to
    raise."""
    try:
        return dumps(getattr(program(), name))
    except AttributeError as error:
        return dumps(AttributeError(str(error)))
    except Exception as error:
        return dumps(
            pickle.PicklingError(
                f"__main__.{name} cannot be sent to a rank ({error}): put it in a module of its "
                "own, which ranks import, or save and load a state_dict."
            )
        )
