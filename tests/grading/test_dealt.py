"""What ranks are given: each its own share, of numbers that no seed gives back."""

from __future__ import annotations

import pickle

import torch

from dlviz.grading.assignments.mesh_3d.model import Widths
from dlviz.grading.assignments.mesh_3d.run import Given, MeshSize
from dlviz.grading.harness.dealt import Dealt, copied, fresh


def test_no_two_generators_begin_alike():
    assert fresh().initial_seed() != fresh().initial_seed()


def test_a_rank_that_has_taken_its_share_holds_nothing_of_the_others():
    dealt = Dealt(["zero", "one", "two"])
    assert dealt.take(1) == "one"
    assert b"zero" not in pickle.dumps(dealt) and b"two" not in pickle.dumps(dealt)


def test_a_share_of_a_mesh_has_no_memory_in_which_more_lies_than_its_own_numbers():
    size = MeshSize(2, 2, 2)
    given = Given.drawn(size, Widths())
    for rank in range(size.ranks):
        at = size.place(rank)
        share = pickle.loads(pickle.dumps(given.dealt(size))).take(rank)
        assert [*share.weights] == ["embedding", f"{at['pp']}.up", f"{at['pp']}.down"]
        for each in (*share.weights.values(), *(t for batch in share.batches for t in batch)):
            assert each.untyped_storage().nbytes() == each.nbytes
        assert torch.equal(share.batches[1][0], given.batches[1][0][at["dp"]])


def test_what_is_taken_is_no_tensor_of_a_class_of_the_program():
    class Liar(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return True

    assert type(copied(torch.zeros(2).as_subclass(Liar))) is torch.Tensor
