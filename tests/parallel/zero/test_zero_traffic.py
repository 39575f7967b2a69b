"""What the stages send and hold, beside their closed forms."""

import itertools

import pytest
import torch
from torch import nn

import dlviz
from dlviz import sim
from dlviz.cluster import Storages
from dlviz.parallel import offload, update_rules, zero
from dlviz.parallel.recomputed import Recomputed

RANKS, STEPS = 3, 2
WIDTHS = (16, 41, 37, 29, 23, 5)
LAYERS = [a * b + b for a, b in itertools.pairwise(WIDTHS)]
BUCKET = 4 * max(LAYERS)  # bytes
TRAFFIC = [  # units of (N-1)/N of the padded parameters a step, and what sends so much
    (lambda m: 2, {"stage": 1}),
    (lambda m: 3, {"stage": 1, "naive": True}),
    (lambda m: m + 1, {"stage": 2}),
    (lambda m: 3 * m, {"stage": 3, "prefetch": 2}),
    (lambda m: 3 * m, {"stage": 3, "prefetch": 0}),
    (lambda m: 2 * m, {"stage": 3, "reshard_after_forward": False}),
]
HELD = {  # stage, prefetch: bytes of layers gathered, and of a bucket
    (1, 1): (0, 0),
    (2, 1): (0, BUCKET),
    (3, 0): (4 * LAYERS[1], BUCKET),
    (3, 1): (4 * (LAYERS[1] + LAYERS[2]), BUCKET),
    (3, 2): (4 * (LAYERS[1] + LAYERS[2] + LAYERS[3]), BUCKET),
}


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        *[each for a, b in itertools.pairwise(WIDTHS) for each in (nn.Linear(a, b), nn.ReLU())]
    )


def data():
    x = torch.randn(STEPS, 7, WIDTHS[0], generator=torch.Generator().manual_seed(1))
    return [(each, each.argmax(1) % WIDTHS[-1]) for each in x]


def one_after_the_other(comm):
    for number, (microbatches, (_, how)) in enumerate(itertools.product((1, 4), TRAFFIC)):
        with comm.span("phase", "case", case=number):
            how = {"microbatches": microbatches, "bucket_bytes": BUCKET, **how}
            zero.train(comm, net(), data(), lr=0.01, **how)


def test_the_bytes_in_the_trace_are_those_of_the_closed_form_padding_counted():
    trace = dlviz.launch(one_after_the_other, RANKS).trace
    trace.validate()
    padded = sum(RANKS * zero.shard(length, RANKS)[0] for length in LAYERS)
    assert padded > sum(LAYERS)
    messages, cases = trace.messages, trace.only(kind="phase", rank=0).spans
    cases = [row for row in cases if row.name == "case"]
    for (microbatches, (units, how)), case in zip(
        itertools.product((1, 4), TRAFFIC), cases, strict=True
    ):
        for rank in range(RANKS):
            at = next(
                row for row in trace.only(kind="phase", rank=rank).spans
                if row.name == "case" and row.fields["case"] == case.fields["case"]
            )  # fmt: skip
            own = (messages.src == rank) & (messages.sent >= at.start) & (messages.sent <= at.end)
            expected = STEPS * units(microbatches) * 4 * padded * (RANKS - 1) // RANKS
            assert messages.nbytes[own].sum() == expected, (how, microbatches)
    spans = trace.spans
    for name in ("gather 0", "gather 8", "bucket 0", "free 4"):
        assert (spans.name == name).any()
    free = [row for row in spans if row.name == "free 4"]
    assert {row.fields["layer"] for row in free} == {"4"}
    bucket = next(row for row in spans if row.name == "bucket 0")
    assert bucket.fields["layers"].split(", ")[0] == "8"


def held(comm):
    found = []
    for stage, prefetch in HELD:
        with Storages(comm) as storages:

            def begin(*_, storages=storages):
                storages.begin_step()

            how = {"stage": stage, "prefetch": prefetch, "bucket_bytes": BUCKET, "callback": begin}
            zero.train(comm, net(), data() * 2, lr=0.01, **how)
        found.append((storages.steps[-1], storages.now.by_kind))
    return found


def test_a_rank_holds_its_shards_prefetch_and_one_layers_and_one_bucket():
    shards = 4 * sum(zero.shard(length, RANKS)[0] for length in LAYERS)
    for found in dlviz.launch(held, RANKS, timeout=120).results:
        for one_of, (peak, after) in zip(HELD.items(), found, strict=True):
            (stage, _), (gathered, bucket) = one_of
            most = peak.by_kind
            assert most["parameters"] == shards * (1 if stage == 3 else RANKS)
            # A message that is added needs a buffer, of 1/N of each bucket; two may be in transit.
            assert most["communication"] <= gathered + bucket + 2 * shards
            whole = RANKS if stage == 1 else 1
            of_a_layer = 4 * max(LAYERS)  # from autograd
            assert most["gradients"] <= shards * whole + of_a_layer
            assert most["optimizer"] <= 2 * shards + 4 * 4 * max(LAYERS) // RANKS  # its temporaries
            assert after["parameters"] == most["parameters"]
            assert after["gradients"] == 0 and after["communication"] <= 2 * shards
        one, two, *three = (peak.total for peak, _ in found)
        assert one > two > three[2] >= three[1] > three[0]
        buffers = found[2][0].by_kind["communication"] - sum(HELD[3, 0])
        assert shards <= buffers <= 2 * shards


EQUAL, WIDE = 9, 32  # layers, in segments of 3


def again(comm, prefetch):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh()) for _ in range(EQUAL)]
    batches = [(x, x.argmax(1)) for x in torch.randn(STEPS, 6, WIDE)]
    model = Recomputed(nn.Sequential(*layers))
    zero.train(comm, model, batches, stage=3, prefetch=prefetch, bucket_bytes=4 * WIDE)


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_a_segment_that_runs_again_gathers_each_layer_once_and_no_other_one(prefetch):
    trace = dlviz.launch(again, 2, args=(prefetch,)).trace
    for rank in range(2):
        spans = trace.only(rank=rank).spans
        gathers, frees = (
            [row for row in spans if row.name.startswith(name)] for name in ("gather ", "free ")
        )
        assert len(gathers) == len(frees) == STEPS * EQUAL * 2
        events = [(row.start, 1) for row in gathers] + [(row.end, -1) for row in frees]
        here = [*itertools.accumulate(change for _, change in sorted(events))]
        assert max(here) == max(3, prefetch + 1) and here[-1] == 0


class Seen(update_rules.Adam):
    """Adam that looks at what is held as its last update begins; tried on others before."""

    def step(self, parameters, gradients):
        Seen.kinds = Seen.storages.now.by_kind
        super().step(parameters, gradients)


def at_update(comm):
    how = {"precision": "bfloat16", "microbatches": 2, "bucket_bytes": BUCKET}
    with Storages(comm) as Seen.storages:
        zero.train(comm, net(), data(), Seen(0.01), **how)
    return Seen.kinds


def test_stage_3_in_bfloat16_holds_2_of_values_2_of_gradients_and_12_of_the_rule():
    """As the paper counts: 16 bytes a parameter over all ranks."""
    shards = sum(zero.shard(length, RANKS)[0] for length in LAYERS)
    for kinds in dlviz.launch(at_update, RANKS, timeout=120).results:
        assert (kinds["parameters"], kinds["gradients"]) == (2 * shards, 2 * shards)
        assert kinds["optimizer"] == pytest.approx(12 * shards, rel=0.01)  # none for padding
        own = sum(kinds[kind] for kind in ("parameters", "gradients", "optimizer"))
        assert own == pytest.approx(sim.zero_bytes(RANKS * shards, RANKS, 3, 2, 2, 12), rel=0.01)


def mixed(comm):
    kinds = []

    def look(*_):
        kinds[-1] = storages.now.by_kind

    for train, more in (
        (zero.train, {"stage": 1}),
        (zero.train, {"stage": 3}),
        (offload.train, {}),
    ):
        kinds.append({})
        with Storages(comm) as storages:
            train(comm, net(), data(), "adam", precision="bfloat16", callback=look, **more)
    return kinds


def test_the_float32_master_counts_with_the_rule_as_in_the_formula():
    shards = sum(zero.shard(length, RANKS)[0] for length in LAYERS)
    for one, three, host in dlviz.launch(mixed, RANKS, timeout=120).results:
        assert one["parameters"] == 2 * shards * RANKS
        assert three["parameters"] == 2 * shards
        counts = pytest.approx(12 * shards, rel=0.01)  # the rule has no state for padding
        assert one["optimizer"] == counts and three["optimizer"] == counts
        assert host["optimizer"] == pytest.approx(12 * sum(LAYERS), rel=0.01)
