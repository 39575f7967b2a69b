"""Modules of `dlviz.parallel` by the former names that student notebooks may still import."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import dlviz.parallel
from dlviz.parallel.moved import NAMES


def test_every_former_name_is_the_module_of_today():
    for former, now in NAMES.items():
        with pytest.warns(DeprecationWarning, match=rf"{former} is {now} now") as warned:
            sys.modules.pop(f"dlviz.parallel.{former}", None)
            assert import_module(f"dlviz.parallel.{former}") is import_module(now)
        assert warned[0].filename != import_module("dlviz.parallel.moved").__file__
    with pytest.raises(ModuleNotFoundError, match="dlviz.parallel.nothing"):
        import_module("dlviz.parallel.nothing")


def test_a_strategy_is_found_by_its_name_without_a_warning_and_torch_waits_for_it():
    code = (
        "import sys, warnings; warnings.simplefilter('error')\n"
        "import dlviz.parallel; assert 'torch' not in sys.modules\n"
        "from dlviz.parallel import easgd, gossip, hogwild, parameter_server\n"
        "assert gossip.train and easgd.stable_alpha and 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(getattr(dlviz.parallel, name) for name in dlviz.parallel.__all__)
    with pytest.warns(DeprecationWarning, match="is dlviz.parallel.step.layers now"):
        sys.modules.pop("dlviz.parallel.layers", None)
        vars(dlviz.parallel).pop("layers", None)
        assert dlviz.parallel.layers.LayerSpans
