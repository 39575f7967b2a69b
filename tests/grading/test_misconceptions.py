"""Why a prediction was far off: every question has its misconceptions, none is named wrongly."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dlviz
from dlviz.grading.misconceptions import MISCONCEPTIONS, behind, lab_of
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.metrics import bubble_ratio, makespan, peak_in_flight
from dlviz.models import MLP
from dlviz.parallel.buckets import fill_buckets
from dlviz.parallel.gossip import contraction
from dlviz.parallel.stability import stable_alpha
from dlviz.parallel.update_rules import make as make_rule
from dlviz.schedules import make
from dlviz.sim import kept_activations, layer_bytes, matmul_words, transformer_parameters

LABS = Path(__file__).parents[2] / "labs"
NOTEBOOKS = sorted([*LABS.glob("*.ipynb"), *LABS.parent.glob("assignments/source/*/*.ipynb")])
QUESTIONS = [question for asked in MISCONCEPTIONS.values() for question in asked]
WEIGHTS = 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10  # of the MLP of labs 00 and 01
SLOW = 2e-3, 1e-7  # alpha and beta of lab 02's slow network
LAST = 16 * 2 * 64 * 128 / 23.443e6  # s, the backward of lab 03's first layer on a rank of four


def asked(notebook: Path) -> list[str]:
    code = [c["source"] for c in json.loads(notebook.read_text())["cells"] if "outputs" in c]
    return re.findall(r'predict\(\s*"([^"]+)"', "\n".join("".join(lines) for lines in code))


def messages(algorithm: str, ranks: int) -> int:
    return len(getattr(dlviz.patterns, algorithm).all_reduce(ranks, 8 * ranks))


def ring_bytes(ranks: int, nbytes: int) -> int:
    sent = [m.count for m in dlviz.patterns.ring.all_reduce(ranks, nbytes) if m.src == 0]
    return sum(sent)


def simulated(name: str, ranks: int, microbatches: int, **options: int) -> dlviz.Trace:
    return dlviz.simulate(make(name, ranks, microbatches, **options))


def speed_up(name: str) -> float:
    return 8 / (1 + bubble_ratio(simulated(name, 8, 8)))


def enough() -> int:
    """The fewest microbatches for a bubble ratio of 0.1 on eight devices."""
    good = (m for m in range(60, 90) if bubble_ratio(simulated("gpipe", 8, m)) <= 0.1 + 1e-9)
    return next(good)


def crossing() -> float:
    sizes = np.geomspace(1e5, 3e5, 201)
    curves = {
        name: [dlviz.sim.collective_seconds(name, 8, size, *SLOW) for size in sizes]
        for name in ("ring", "butterfly")
    }
    return dlviz.viz.crossovers(sizes, curves)[0][0] / 1e3


def over_a_switch(algorithm: str, nbytes: int, topology: Topology) -> float:
    machine = Machine(classroom(8).device, topology)
    switch = dlviz.sim.collective_seconds(algorithm, 8, nbytes, *SLOW)
    return makespan(dlviz.sim.collective(algorithm, 8, nbytes, machine)) / switch


def two_hosts(nbytes: float) -> float:
    """The ring over the hierarchical all-reduce on two hosts of two ranks, by bytes alone."""
    cable, inside = Link(0, 12.5e6), Link(0, math.inf)
    ring = dlviz.sim.collective_seconds("ring", 4, nbytes, 0, 1 / cable.bandwidth)
    racks = Topology.racks(2, 2, inside, cable)
    return ring / dlviz.sim.collective_seconds("hierarchical", 4, nbytes, racks)


def scaled(ranks: int, times: float = 1, **options: Any) -> float:
    """Milliseconds of a step of lab 03, whose network has 8.9 MFLOP a batch."""
    flops, nbytes = 64 * (6 * (64 * 128 + 128 * 128 + 1280) - 2 * 64 * 128), 4 * 26_122
    step = flops / 23.443e6 * times
    return 1e3 * dlviz.sim.data_parallel_seconds(ranks, step, nbytes, 5e-3, 1e-8, **options)


def walked(name: str, curvatures: list[float], **options: float) -> int:
    """Steps of an update rule from (1, 1) to a millionth of that distance."""
    rule, w = make_rule(name, **options), torch.ones(2, dtype=torch.float64)
    bends, steps = torch.tensor(curvatures), 0
    while w.norm() > 1e-6 * 2**0.5:
        rule.step([w], [bends * w])
        steps += 1
    return steps


def gradients_of(*nbytes: int) -> torch.nn.Module:
    parameters = (torch.nn.Parameter(torch.zeros(n // 8, dtype=torch.float64)) for n in nbytes)
    model = torch.nn.Module()
    model.all = torch.nn.ParameterList(parameters)
    return model


def second_stage() -> int:
    """Parameters of a rank of the second of two stages of lab 10, two layers over two ranks: the
    products and biases that are cut, those that are not, the last norm, half of the embedding."""
    h = 64
    cut, whole = 12 * h * h + 7 * h, 2 * h + 4 * h
    return 2 * (cut // 2 + whole) + 2 * h + 128 * h // 2


def answers() -> dict[str, list[float]]:
    """What is measured: computed here apart from the labs, or the range that machines show."""
    slow = Link(SLOW[0], 1 / SLOW[1])
    racks = Topology.racks(2, 4, slow, Link(SLOW[0], 0.1 / SLOW[1]))
    ring, tensor, n = messages("ring", 4), 96, 4
    pipedream = [str(action) for action in make("pipedream", 4, 16).actions[0]]
    before_b8 = pipedream[: pipedream.index("0B8")]
    after_f8 = before_b8[before_b8.index("0F8") :]
    return {
        "messages of a ring all-reduce, 4 ranks": [ring],
        "share of the time in which a rank computes": [1.5, 4.6, 8],
        "speed-up of 4 ranks over 1, naive": [400 / (100 + 7 * 6 * 1 + 0.157), 2.7],
        "a DDP step on the classroom machine": [100 + 6 * 1 + 1.5 * 0.03328, 108],
        "seconds until a deadlock is named": [0.3, 0.6, 3],
        "layer storage of a step, MLP 64-128-128-10, 64 images": [
            2 * 4 * (WEIGHTS + 64 * (4 * 128 + 10)) / 1000
        ],
        "kept by autograd, MLP 64-128-128-10, 64 images": [4 * 64 * (64 + 128 + 128) / 1000],
        "speed-up by momentum, curvatures 1 and 100": [
            walked("sgd", [1, 100], lr=2 / 101)
            / walked("momentum", [1, 100], lr=4 / 121, momentum=(9 / 11) ** 2)
        ],
        "AdaGrad: turned ravine over ravine along the axes": [205 / 31],
        "Nesterov as printed: largest rate at which it comes to rest, curvature 1": [
            make_rule("nesterov", 0.01, printed=True).stable_rate(1),
            0.0526,
        ],
        "noise of the gradient: batch 16 over batch 256": [3.9, (256 / 16) ** 0.5, 4.1],
        "steps to 5 % error, batch 1,024, rate 0.1": [405, 422, 440],
        "batch with the fewest steps, rate scaled": [256],
        "messages of a butterfly, 4 ranks": [messages("butterfly", 4)],
        "latency of a message between two processes": [20, 44.6, 200],
        "ring all-reduce of 100 KB, 4 ranks, slow network": [
            1e3 * dlviz.sim.collective_seconds("ring", 4, 100_000, *SLOW),
            27.7,
        ],
        "the ring overtakes the butterfly, 8 ranks, slow network": [crossing()],
        "halving-doubling: wired to neighbours over switch, 1 MB": [
            over_a_switch("halving_doubling", 1_000_000, Topology.ring(8, slow))
        ],
        "ring: two racks over switch, 100 KB": [over_a_switch("ring", 100_000, racks)],
        "ring over hierarchical, two hosts of two ranks, 16 MB": [1.4, two_hosts(16e6), 1.53],
        "loss in step 20, 4 ranks, sum of gradients": [2.27, 2.33],
        "weights that differ between ranks 0 and 3 after 100 steps": [0],
        "lowest mean loss that any model can have on new sentences": [
            dlviz.datasets.entropy_per_token()
        ],
        "loss of shards of 15 and 5 targets, an average of averages": [(2.12 + 1.42) / 2, 1.766],
        "times |θ| that rank 0 sends in a step, first form, 4 ranks": [4 - 1],
        "a step with one bucket, 4 ranks": [scaled(4), 127.5],
        "a step with three buckets, 4 ranks": [scaled(4, buckets=3, overlap=LAST), 177],
        "the step with three buckets, rank 2 twice as slow": [
            scaled(4, times=2, buckets=3, overlap=2 * LAST)
        ],
        "speed-up of 16 ranks over 1, ring": [scaled(1) / scaled(16)],
        "speed-up of 8 ranks over 1, halving-doubling": [
            scaled(1) / scaled(8, algorithm="halving_doubling"),
            4.7,
        ],
        "efficiency of weak scaling, 8 ranks, ring": [
            100 * scaled(1) / scaled(8, scaling="weak"),
            83.5,
        ],
        "gradients per second, synchronous server, one of 4 workers 3x slow": [4 / 0.18],
        "gradients per second, asynchronous server, one of 4 workers 3x slow": [
            3 / 0.06 + 1 / 0.18,
            54.9,
        ],
        "gradients per second that count, synchronous server, 1 backup worker": [3 / 0.06],
        "test images of 8 and 9 misread, one backup worker": [100],
        "mean staleness, 4 asynchronous workers alike": [4 - 1],
        "mean staleness, 4 asynchronous workers, one 3x slow": [(3 * 3 * 7 / 3 + 9) / 10],
        "a clock with s = 3, one of 4 workers always 3x slow": [3 * 60],
        "a clock with s = 0, each gradient 3x slow with probability 1/10": [
            60 + 120 * (1 - 0.9**4),
            100.8,
        ],
        "increments lost of 4 x 10,000, no lock, ranks pinned to cores": [15_000, 20_823, 25_000],
        "synchronous EASGD, 4 workers, rate 0.5, curvature 1: largest α": [
            stable_alpha(4, 0.5, "synchronous")
        ],
        "rounds of gossip to 1 % disagreement, ring of 8": [
            math.ceil(math.log(0.01) / math.log(contraction(8, "ring")))
        ],
        "time to a loss of 1.8, synchronous over asynchronous, one worker 3x slow": [
            1.2,
            1.4,
            1.6,
        ],
        "speed-up of 2 ranks, halves in sequence": [1, 0.99],
        "speed-up of 2 ranks, halves side by side": [2, 1.97],
        "bytes that an LSTM keeps, 40 time steps over 20": [1.96, 2],
        "bytes a rank of 4 sends, partition output, B = 64, 512 to 2048": [
            layer_bytes("partition_output", 64, 512, 2048, 4)
        ],
        "bytes a rank of 4 sends, reduce output, B = 64, 512 to 2048": [
            layer_bytes("reduce_output", 64, 512, 2048, 4)
        ],
        "B from which data parallelism beats partition output, 512 to 2048": [
            next(
                rows
                for rows in range(1, 10_000)
                if layer_bytes("data", rows, 512, 2048, 4)
                <= layer_bytes("partition_output", rows, 512, 2048, 4)
            )
        ],
        "collectives of a naive MLP, forward and backward": [2 * 2],
        "all-reduces of a column-row MLP, forward and backward": [2],
        "bytes sent in a forward, with sequence parallelism over without": [1],
        "kept with tensor parallelism over 4 ranks, 54 on one": [
            sum(kept_activations(64, 8, 64, 4, 4).values()) / (64 * 8 * 64)
        ],
        "GFLOP/s of a sixteenth of the columns over those of all": [40, 54.5, 85, 115],
        "speed-up of an MLP on 8 ranks, slow link": [
            0.4 / (0.05 + 2 * dlviz.sim.collective_seconds("ring", 8, 32_768, 4e-3, 1.6e-7)),
            2.18,
        ],
        "words a rank receives, 512 x 512 matrices on a grid (2, 2, 2)": [
            matmul_words(512, 512, 512, (2, 2, 2))
        ],
        "speed-up of 8 devices, one microbatch at a time": [speed_up("naive"), 0.99],
        "speed-up of 8 devices, GPipe with 8 microbatches": [speed_up("gpipe")],
        "microbatches for a bubble ratio of 0.1, 8 devices": [enough()],
        "microbatches held by rank 0, 1F1B, 4 ranks, 16 microbatches": [
            peak_in_flight(simulated("1f1b", 4, 16))[0]
        ],
        "messages, interleaved, 4 ranks, 2 chunks, 8 microbatches": [
            len(simulated("interleaved", 4, 8, chunks=2).messages)
        ],
        "updates between forward and backward, rank 0 of 4, PipeDream": [
            sum("B" in action for action in after_f8)
        ],
        "bubble ratio of ZB-H1, 4 ranks, 8 microbatches": [
            bubble_ratio(simulated("zb_h1", 4, 8)),
            0.13,
        ],
        "rank with which rank 5 averages its gradients, mesh 2 x 2 x 2": [(5 + 4) % 8],
        "bytes a rank sends along tp in a step, layers alone, 2 x 2 x 2": [
            2 * 4 * 4 * ring_bytes(2, 4 * 2 * 64 * 64)  # layers, all-reduces, microbatches
        ],
        "bytes a rank of the first stage sends along pp in a step, 2 x 2 x 2": [4 * 4 * 2 * 64**2],
        "KB a rank of the second stage sends along dp in a step, 2 x 2 x 2": [
            second_stage() * 4 / 1e3,
            218.5,
        ],
        "step with tp between the racks over tp inside, 10 times slower link": [2.2, 2.5, 3],
        "share of the microbatches' bytes that scatter and gather save, tp = 2": [
            100 * (1 - 1 / 2)
        ],
        "bubble ratio of the 2 x 2 x 2 step, 4 microbatches": [
            bubble_ratio(simulated("1f1b", 2, 4)),
            0.28,
        ],
        "share of the weights that rank 0 holds, pp = 2, tp = 2": [
            100 * (second_stage() - 128 + 64 * 64) / 212_352
        ],
        "plans of 8 ranks for 4 layers and 4 heads": [
            sum(8 % (pp * tp) == 0 for pp in (1, 2, 4) for tp in (1, 2, 4))
        ],
        "V100 of 32 GB that hold 16 bytes of each of 8.3 billion parameters": [
            math.ceil(16 * transformer_parameters(72, 3072, 51_200, 1024) / 32e9)
        ],
        "bytes of weights and updates in a round, 4 clients, MLP 64-32-10": [
            2 * 4 * 4 * (64 * 32 + 32 + 32 * 10 + 10)
        ],
        "share of a round in which client 0 trains, 4 clients": [
            100 * 180 / (4 * 10.016 + 19.64 + 180 + 4 * (19.64 + 10.04) + 5)
        ],
        "rounds to 90 %, 10 clients, C = 0.5, E = 5, B = 10": [3, 4, 6],
        "rounds to 90 %, two labels a client over identical data, E = 5, B = 10": [
            10.75,
            43 / 3,
        ],
        "rounds to 90 %, FedSGD, C = 1, two labels a client over identical data": [1],
        "test images of 8 and 9 read, deadline that drops their clients": [0],
        "digits read, 20 clients with one digit each, E = 5": [20],
        "digits read, 20 clients with one digit each, clipped to 0.001": [20],
        "digits read of a client's 16, one step": [2.3, 2.5],
        "bytes that a secure sum adds to a client's update, n = 8": [
            100
            * (179 * 8 + 148 + len("shape (2410,), float32, threshold 5, clip 1.0, bits 32"))
            / 9640
        ],
        "epsilon of 40 rounds, q = 0.1, sigma halved from 2 to 1": [
            dlviz.federated.epsilon(1, 0.1, 40, 1e-5)
        ],
        "test digits read, mean, one of 10 clients sends its update times -10": [9.4, 13.9, 21],
        "rules of 4 that read 80 % with 4 attackers among 10 clients": [2],
        "test digits read, Krum, two labels a client, no attacker": [19.7],
        "bytes that a rank sends, 4 ranks, 96 bytes each": [ring / n * (tensor / n)],
        "the chunk that is whole on rank 0 after reduce-scatter, 4 ranks": [
            next(
                m.offset for m in dlviz.patterns.ring.all_reduce(4, 4) if m.src == 0 and m.step == 3
            )
        ],
        "mean gradient: 3 examples with the gradient 2, 1 example with 6": [
            np.average([2, 6], weights=[3, 1])
        ],
        "buckets of at most 72 bytes, gradients of 32, 56, 24, 48, 16 bytes": [
            len(fill_buckets(gradients_of(32, 56, 24, 48, 16), 72))
        ],
        "a DDP step with three buckets, 4 ranks": [
            30 + 60 + 1e3 * dlviz.sim.collective_seconds("ring", 4, 9216, 3e-3, 0.0)
        ],
        "weight 10, updated by 1 and by 2 under the lock": [10 - 1 - 2],
        "staleness of most gradients, 4 workers equally fast, no bound": [4 - 1],
        "6 gradients each, bound 1, one of 3 workers 3 times as slow": [6 * (45 + 1 + 2 + 1), 300],
        "numbers that a rank holds, MLP 16-32-16, 4 ranks": [16 * 32 // 4 * 2 + 32 // 4 + 16],
        "all-reduces in a step of a tensor-parallel MLP": [2],
        "bytes that a rank sends in a step, 4 rows, MLP 16-32-16, 4 ranks": [
            2 * ring_bytes(4, 4 * 16 * 8)
        ],
        "a step of the MLP on 4 ranks, 96 ms on one": [
            96 / 4 + 2e3 * dlviz.sim.collective_seconds("ring", 4, 512, 1e-3, 0.0),
            37,
        ],
        "rank with which rank 5 averages gradients, mesh dp=2, pp=2, tp=2": [5 - 2 * 2],
        "bytes that a rank sends along tp, 2x2x2, two blocks of 16-32-16, 8 x 8 tokens": [
            2 * ring_bytes(2, 8 * 8 * 16 * 8)
        ],
        "bytes that a rank sends along dp, 2x2x2, two blocks of 16-32-16, V = 48": [
            ring_bytes(2, 48 * 16 * 8) + ring_bytes(2, 2 * 16 * 16 * 8)
        ],
        "weight 2: 60 examples lead to 4, 20 to 0, and 20 to -1 too late": [
            2 + (60 * (4 - 2) + 20 * (0 - 2)) / (60 + 20)
        ],
        "bytes in a round, 4 clients, MLP 64-32-10, numbers of 8 bytes": [
            2 * 4 * 8 * sum(p.numel() for p in MLP((64, 32, 10)).parameters())
        ],
        "4 rounds, deadline 40 ms, one of 4 clients 4 times as slow": [
            40 + 2 * (3 + 20 + 1) + 40 + 3 * 1
        ],
        "rounds to 90 %, 5 clients with two labels each": [36, 43, 50],
        "microbatches in flight on rank 0, 1F1B, 4 ranks, 8 microbatches": [
            peak_in_flight(simulated("1f1b", 4, 8))[0]
        ],
        "bubble ratio of 1F1B, 4 ranks, 8 microbatches": [bubble_ratio(simulated("1f1b", 4, 8))],
        "chunks in flight on rank 0, interleaved, 4 ranks, 8 microbatches, 2 chunks": [
            peak_in_flight(simulated("interleaved", 4, 8, chunks=2))[0]
        ],
    }


@pytest.fixture(scope="module")
def measured() -> dict[str, list[float]]:
    return answers()


def sentences(question: str) -> list[str]:
    return [sentence for _, sentence in MISCONCEPTIONS[lab_of(question)][question]]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_question_of_a_notebook_has_its_misconceptions(notebook):
    questions, number = asked(notebook), notebook.stem[:2]
    assert questions
    for question in questions:
        lab = lab_of(question)
        assert lab == notebook.stem or (number.isdigit() and lab[:2] == number), question
        assert len(sentences(question)) >= 3, question


def test_every_question_is_asked_somewhere():
    assert sorted(QUESTIONS) == sorted(q for notebook in NOTEBOOKS for q in asked(notebook))


def test_the_right_answer_is_never_explained_away(measured):
    assert set(measured) == set(QUESTIONS)
    for question, values in measured.items():
        for value in values:
            for near in (value, 0.97 * value, 1.03 * value):
                assert behind(question, near, value) == "", (question, near, value)


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_sentence_is_reached_by_some_number(question, measured):
    numbers = [*range(-1, 300), *np.geomspace(1e-3, 1e7, 4250), 0.1875, 570, 576, 600, 640]
    for value in measured[question]:
        reached = {behind(question, number, value) for number in numbers}
        assert set(sentences(question)) <= reached, value
        assert "" in reached


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_sentence_is_one_that_a_reader_can_use(question):
    told = sentences(question)
    assert len(set(told)) == len(told)
    for sentence in told:
        assert 20 < len(sentence) < 220 and sentence[0].isupper() | sentence[0].isdigit()
        assert sentence.endswith(".") and "  " not in sentence


def test_a_time_that_came_out_near_the_prediction_makes_it_right():
    question = "ring all-reduce of 100 KB, 4 ranks, slow network"
    assert behind(question, 13.5, 27) and not behind(question, 13.5, 13.2)


def test_ranks_that_wait_for_most_of_the_time_are_told_of_only_where_they_do():
    question = "share of the time in which a rank computes"
    assert "ranks mostly wait" in behind(question, 75, 5)
    assert behind(question, 60, 43) == "" and "ranks mostly wait" in behind(question, 90, 43)


def test_a_number_that_no_misconception_leads_to_is_left_alone():
    assert behind("messages of a ring all-reduce, 4 ranks", 21, 24) == ""
    assert behind("a question of the reader's own", 1, 2) == ""
    assert lab_of("a question of the reader's own") == ""
