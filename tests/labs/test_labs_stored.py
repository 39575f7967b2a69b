"""The labs as they are committed: what their runs measured is what their text says."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from stored import shown, table

from dlviz.grading.questions import by_lab

LABS = Path(__file__).parents[2] / "labs"
NOTEBOOKS = sorted(path.stem for path in LABS.glob("*.ipynb"))


@pytest.mark.parametrize("lab", NOTEBOOKS)
def test_the_committed_runs_measured_what_the_questions_answer(lab):
    cells = nbformat.read(LABS / f"{lab}.ipynb", as_version=4).cells
    outputs = [o.get("data", {}) for c in cells for o in c.get("outputs", [])]
    said = [data.get("text/plain", "") for data in outputs]
    result = re.compile(r"(.*?): (?:example guess .*?, )?(?:measured|calculated) (-?[\d.,]+)")
    lines = [result.match(" ".join(words.split())) for words in said]
    measured = {line[1]: float(line[2].replace(",", "")) for line in lines if line}
    for question in by_lab()[lab.partition("_")[0]]:
        value, answer = measured[question.asks], question.answer
        if question.range and not question.within:
            assert question.range[0] <= value <= question.range[1], question.id
        else:
            assert value == pytest.approx(answer, rel=question.within or 1e-3), question.id


def test_the_committed_page_of_progress_counts_the_questions_of_every_lab_and_assignment():
    said = shown("00_start_here", "dlviz.grading.progress()")
    rows = re.findall(r"^(?:(\d\w+) \D+?|Assignment: .+?) +(\d+) ", said, re.M)
    asked = {name: len(questions) for name, questions in by_lab().items()}
    labs = {path.partition("_")[0]: asked[path.partition("_")[0]] for path in NOTEBOOKS}
    assert {lab: int(count) for lab, count in rows if lab} == labs
    assert len(rows) == len(asked) and f"0 of {sum(asked.values())} results seen" in said


def test_the_committed_steps_lie_within_3_percent_of_what_was_calculated():
    rows = table("00_start_here", 'times["gap (%)"]')
    assert [*rows] == ["one rank", "naive", "DDP"]
    assert all(abs(gap) < 3 for _, _, gap in rows.values())


def test_the_committed_bubbles_of_gpipe_lie_within_2_percent_of_the_formula():
    rows = table("09_pipelines", 'table["gap (%)"]')
    assert [*rows] == ["1", "2", "4", "8", "16", "32", "64"]
    for microbatches, (formula, simulated, measured, gap) in rows.items():
        assert formula == simulated == round(7 / int(microbatches), 3)
        assert abs(gap) < 2 if microbatches in ("8", "16", "32") else measured != measured


def test_the_committed_table_of_six_schedules_is_what_the_text_draws_from_it():
    rows = table("09b_zero_bubble", '"held": peak_in_flight')
    for name, (formula, simulated, measured, _, _, _) in rows.items():
        assert formula == simulated == pytest.approx(measured, abs=0.01), name
    formulas, *_, gaps, held, messages = (
        dict(zip(rows, column, strict=True)) for column in zip(*rows.values(), strict=True)
    )
    assert formulas["ZB-H1"] == formulas["1F1B"] / 3 and held["ZB-H1"] == held["1F1B"] == 4
    assert gaps["ZB-H2"] == gaps["ZB-V"] == 0 and gaps["ZB-H1"] > 0
    assert held["ZB-H2"] > held["ZB-H1"] and messages["ZB-V"] == 2 * messages["ZB-H2"]


def test_of_the_committed_seeds_the_larger_rate_takes_pipedream_further_but_not_in_share():
    rows = re.findall(r"(median|min|max) +([\d.]+) +([\d.]+)$",
                      shown("09b_zero_bubble", "spread.T"), re.M)  # fmt: skip
    assert [name for name, *_ in rows] == 3 * ["median", "min", "max"]
    _, apart, shares = ([[float(n) for n in row[1:]] for row in rows[k : k + 3]] for k in (0, 3, 6))
    assert all(slow < fast for slow, fast in apart)
    (slow, fast), (least, lower), (most, upper) = shares
    assert lower < most and least < slow < most and lower < fast < upper
    page = (LABS.parent / "docs" / "teaching" / "09b_zero_bubble.md").read_text()
    said = re.findall(r"(\d+) % \(([\d.]+) to (\d+)\)", page)
    assert [[float(n) for n in each] for each in said] == [
        [round(slow), round(least, 1), round(most)],
        [round(fast), round(lower, 1), round(upper)],
    ]


def test_the_committed_halves_hold_half_the_bytes_and_only_side_by_side_save_time():
    said = shown("06_tensor_parallel", '"most bytes on a rank"')
    rows = [line.split()[-3:] for line in said.splitlines() if re.search(r"\d\.\d\d +\d+ *$", line)]
    (_, _, whole), chain, (_, _, other), fork = [[float(value) for value in row] for row in rows]
    assert chain[2] == whole / 2 and fork[2] == other / 2
    assert chain[:2] == pytest.approx((480, 0.92), rel=0.005)
    assert fork[:2] == pytest.approx((240, 1.67), rel=0.005)


def test_of_the_committed_forms_only_the_two_of_tensor_parallelism_cut_weights_and_adam():
    held = table("06_tensor_parallel", "total=held")
    for form, (weights, gradients, adam, total) in held.items():
        assert (gradients, adam, total) == (weights, 2 * weights, 4 * weights), form
    assert held["data"][3] == 4 * held["partition_output"][3] == 4 * held["reduce_output"][3]


def test_the_committed_narrow_products_lose_as_the_page_says():
    cells = nbformat.read(LABS / "06_tensor_parallel.ipynb", as_version=4).cells
    (cell,) = [c for c in cells if "def gflops" in c.source]
    (bars,) = cell.outputs[-1].data["application/vnd.plotly.v1+json"]["data"]
    rates = np.frombuffer(base64.b64decode(bars["y"]["bdata"]), bars["y"]["dtype"])
    speed = dict(zip((2048, 512, 128, 32, 8, 2), rates, strict=True))  # by columns
    assert speed[32] > 0.75 * speed[2048] and speed[8] < 0.3 * speed[2048]


def test_the_committed_steps_of_an_mlp_on_a_slow_link_lie_within_3_percent_of_the_formula():
    rows = table("06_tensor_parallel", 'steps["times as fast"]')
    assert [*rows] == ["1", "2", "4", "8"]
    for measured, formula, _ in rows.values():
        assert measured == pytest.approx(formula, rel=0.03)
    assert rows["8"][2] < rows["4"][2]


def test_the_committed_counts_of_saved_activations_are_the_published_ones_and_their_gap():
    for published, wider, beside, counted in table(
        "06_tensor_parallel", "saved).T.rename"
    ).values():
        assert published + wider + beside == pytest.approx(counted, abs=0.02) and 0 < beside < 0.5


def test_in_the_committed_steps_a_larger_batch_makes_more_of_the_processor():
    cost = table("01_training_step", "cost = step_cost")
    assert [cost[part][1] for part in ("forward", "backward", "update")] == [51_712, 87_040, 0]
    said = shown("01_training_step", 'table["images a second"]')
    rows = re.findall(r"^(\d+) .* ([\d.]+) +([\d.]+)$", said, re.M)
    images, seconds = ({int(row[0]): float(row[n]) for row in rows} for n in (1, 2))
    assert images[1024] > 10 * images[8]
    assert min(seconds.values()) < 0.8 * min(seconds[8], seconds[1024])


def test_the_committed_noise_equals_the_gradient_at_90_images_and_later_at_300():
    rows = table("01_training_step", "for name, each in noises.items()})")
    sizes = np.log([int(size) for size in rows])
    for column, batch in enumerate((90, 300)):
        noise = [row[column] for row in rows.values()]
        crossing = np.exp(np.interp(0, -np.log(noise), sizes))
        assert crossing == pytest.approx(batch, rel=0.1)
        assert noise[0] / noise[-1] == pytest.approx(128**0.5, rel=0.2)


def test_the_committed_losses_of_ddp_are_those_by_hand_and_ours_those_of_one_process():
    by_torch, ours = shown("03_data_parallel", "def by_torch").splitlines()
    assert by_torch == "DDP's losses off from those by hand by less than 0.00001: True"
    assert ours == "ours, weighted, off from one process by less than 0.0001: True"


def test_of_the_committed_methods_overlap_wins_where_bytes_take_the_time_else_the_server():
    said = shown("03_data_parallel", '"by the wall clock (ms)"').partition("wall clock")[0]
    methods = ["naive", "server", "one bucket", "three buckets"]
    rows = re.findall(rf"^.*?({'|'.join(methods)}) +([\d.]+) +([\d.]+)", said, re.M)
    assert [name for name, *_ in rows] == 2 * methods
    for _, measured, calculated in rows:
        assert float(measured) == pytest.approx(float(calculated), rel=0.005)
    first, latent = ({n: float(took) for n, took, _ in rows[k : k + 4]} for k in (0, 4))
    assert max(first, key=lambda n: first[n]) == "server"
    assert min(first, key=lambda n: first[n]) == "three buckets"
    assert min(latent, key=lambda n: latent[n]) == "server"


def test_the_committed_strong_scaling_gives_1_80_and_2_99_and_4_44_times():
    rows = table("03_data_parallel", "runs |=")
    times = {ranks: row[-1] for ranks, row in rows.items()}
    assert times == pytest.approx({"1": 1, "2": 1.80, "4": 2.99, "8": 4.44}, rel=0.01)


def test_of_the_committed_shards_the_weighted_ones_have_the_loss_and_gradient_of_one_process():
    rows = table("03_data_parallel", "def one_step")
    (whole, _), (sentences, far), (tokens, near) = rows.values()
    assert tokens == whole and sentences < 0.95 * whole
    assert near < 1e-6 and far > 1e-2


def test_a_committed_run_drops_the_gradients_of_the_slow_worker():
    assert ": 21 gradients" in shown("04_consistency", "['dropped']")


def test_the_committed_servers_shorten_the_step_as_the_page_says():
    rows = re.findall(r"^(\d) +(\d+)\.0$", shown("04_consistency", "sharded = {}"), re.M)
    assert rows == [("1", "210"), ("2", "180"), ("4", "158")]


def test_the_committed_bounds_save_time_by_chance():
    rows = table("04_consistency", "long_run = {")
    assert [*rows] == ["0.0", "1.0", "3.0", "inf"]
    for chance, long_run in rows.values():
        assert chance == pytest.approx(long_run, rel=0.05)
    chances = [chance for chance, _ in rows.values()]
    assert chances == sorted(chances, reverse=True)


def test_without_a_lock_the_committed_trainings_learn_and_the_sparse_one_loses_less():
    rows = table("04_consistency", 'found[name] = {"lost (%)"')
    (dense, *_), (sparse, *_) = rows.values()
    assert sparse < dense
    assert all(last < first for _, first, last in rows.values())
    assert "lock: 0 of" in shown("04_consistency", '"lock": True')


def test_the_committed_runs_lie_among_the_recorded_seeds():
    rows = table("04_consistency", "now[[")
    assert [*rows] == ["synchronous", "asynchronous"]
    assert all(fewest <= now <= most for now, fewest, most in rows.values())


def test_the_committed_halves_of_a_ring_have_half_of_its_rounds_messages_and_bytes():
    said = shown("02_collectives", '"tensors sent"')
    rows = re.findall(r"^(\S.*?) +(True|False) +(\d+) +(\d+) +([\d.]+)$", said, re.M)
    found = {name: [complete, *map(float, counts)] for name, complete, *counts in rows}
    assert len(found) == 9 and found["ring"] == ["True", 6, 24, 1.5]
    halves = [found.pop(f"ring, {half}") for half in ("reduce-scatter", "all-gather")]
    assert halves == 2 * [["False", 3, 12, 0.75]]
    assert all(complete == "True" for complete, *_ in found.values())


@pytest.mark.parametrize("words", ["milliseconds(paced),", "table = beside(", "beside(on_racks"])
def test_the_committed_all_reduces_lie_within_5_percent_of_what_was_calculated(words):
    rows = table("02_collectives", words)
    assert len(rows) > 1 and all(abs(row[-1]) < 5 for row in rows.values()), rows


@pytest.mark.parametrize("lab", NOTEBOOKS)
def test_a_figure_fits_on_a_screen(lab):
    found = re.findall(r'"height":([\d.]+)', (LABS / f"{lab}.ipynb").read_text())
    assert [height for height in map(float, found) if height > 640] == []


def test_the_bus_bandwidth_is_seen_beside_the_speed_of_the_link():
    cells = nbformat.read(LABS / "02_collectives.ipynb", as_version=4).cells
    (cell,) = [c for c in cells if 'show="bus"' in c.source]
    (line,) = cell.outputs[-1].data["application/vnd.plotly.v1+json"]["layout"]["shapes"]
    assert line["y0"] == line["y1"] == 10e6


def test_the_committed_exchanges_of_codes_take_what_was_calculated_and_lose_on_this_computer():
    said = shown("05_compression", "took.round(2)")
    rows = re.findall(r"^(1|100) MB/s +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", said, re.M)
    found = {link: [float(each) for each in row] for link, *row in rows}
    assert found["1"] == pytest.approx([186.74, 36.05, 26.05, 5.18], rel=0.005)
    assert found["100"] == pytest.approx([31.57, 25.11, 15.11, 1.26], rel=0.005)
    said = shown("05_compression", 'here[name] = {"milliseconds"')
    ring, *codes = [float(each) for each in re.findall(r" ([\d.]+)$", said, re.M)]
    assert len(codes) == 3 and ring < min(codes)
    share = float(re.findall(r"[\d.]+", shown("05_compression", "in the sum: {"))[0])
    assert share == pytest.approx(7.7 / 2, rel=0.1)
