"""Former names of the modules of `dlviz.parallel`, from before it had subpackages."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ROOMS = {
    "data": "naive ddp buckets accumulation central late_all_reduce",
    "server": "parameter_server push_pull stale_synchronous hogwild slices=server_slices",
    "averaging": "easgd local_sgd gossip ensemble",
    "averaging.easgd": "stability elastic=messages",
    "model": "parts=layer_split ties=tied_parameters exchange=part_messages",
    "step": "layers prices replicas hooks batch_norm shards=sharded_step "
    "trained=trained_parameters",
    "tensor": "tensor.kept=saved_activations tensor.agree=checks",
}
NAMES = {  # former name, after "dlviz.parallel." -> the module now
    old: f"dlviz.parallel.{room}.{new or old}"
    for room, names in _ROOMS.items()
    for old, _, new in (name.partition("=") for name in names.split())
}


class Moved(MetaPathFinder, Loader):
    """Imports a module by its former name, with a DeprecationWarning that names the new one."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        _, parallel, former = fullname.partition("dlviz.parallel.")
        return ModuleSpec(fullname, self) if parallel and former in NAMES else None

    def exec_module(self, module: ModuleType) -> None:
        name = NAMES[module.__name__.removeprefix("dlviz.parallel.")]
        warnings.warn(f"{module.__name__} is {name} now.", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = import_module(name)


sys.meta_path.append(Moved())
