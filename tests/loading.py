"""Programs beside the package, as modules: what recorded a lab's trainings, what builds labs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import cloudpickle


def loaded(path: Path) -> ModuleType:
    """The program at `path`, run as a module of a name of its own."""
    name = f"{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)  # no rank finds it
    spec.loader.exec_module(module)
    return module
