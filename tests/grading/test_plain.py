"""What a rank may send back: numbers, strings, tensors, arrays, lists and records of them."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch

from dlviz.cluster import RankError, launch
from dlviz.cluster.recording import results
from dlviz.grading.assignments.ddp.run import Trained
from dlviz.grading.harness import plain
from dlviz.grading.harness.feedback import CheckFailed

PLAIN = [
    None,
    1.5,
    "a",
    b"b",
    {1: [2, (3,)], "s": {4}},
    range(3),
    OrderedDict(a=1),
    torch.arange(3.0, dtype=torch.float64),
    torch.nn.Parameter(torch.ones(2, 2)),
    torch.Size([2]),
    torch.float64,
    np.arange(4).reshape(2, 2),
    np.float64(1.0),
    np.array(["a", None], dtype=object),
    Trained(parameters=[torch.ones(1)]),
]


class Own:
    """A class of a program's."""


class Runs:
    def __init__(self, *call):
        self._call = call

    def __reduce__(self):
        return self._call


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_data_comes_back_as_it_was(value):
    plain.require(value)
    with results.finding(plain.find):
        back = results.load(results.pack(value, leave=False))
    assert type(back) is type(value) and repr(back) == repr(value)


def test_a_failed_check_comes_back_in_its_words():
    failed = CheckFailed("this", "that", "look")
    with results.finding(plain.find):
        assert str(results.load(pickle.dumps(failed))) == str(failed)


@pytest.mark.parametrize(
    "value",
    [
        Own(),
        Own,
        Runs(eval, ("1",)),
        Runs(os.getpid, ()),
        Runs(getattr, ("", "join")),
        Runs(torch.load, ("x",)),
        Runs(launch, (print, 1)),
        test_plain_data_comes_back_as_it_was,
        torch.nn.Linear(1, 1),
    ],
)
def test_anything_else_is_refused_before_any_of_it_runs(value):
    with pytest.raises(TypeError, match=r"plain data: .* neither a number nor a string"):
        plain.require([value])


def test_the_storage_of_a_tensor_holds_numbers_alone(tmp_path):
    torch.save(Runs(os.mkdir, (str(tmp_path / "ran"),)), tmp_path / "saved")
    data = (tmp_path / "saved").read_bytes()
    load = plain.find("torch.storage", "_load_from_bytes")
    with pytest.raises(pickle.UnpicklingError):
        load(data)
    assert not (tmp_path / "ran").exists()


def returns(comm, value):
    return value


def test_a_rank_that_sends_an_object_of_its_own_fails_alone():
    with results.finding(plain.find), pytest.raises(RankError, match="cannot be read back"):
        launch(returns, 1, device="cpu", args=(Own(),))
    assert isinstance(launch(returns, 1, device="cpu", args=(Own(),)).results[0], object)
