"""analysis.compared: a method's row is that of its best rate over the seeds."""

from __future__ import annotations

import json
import math

import pytest

from dlviz import viz
from dlviz.analysis.compared import at_best_rates

LOSSES = {  # by rate, a list for each seed
    0.1: [[4.0, 3.0, 2.0, 1.5, 1.2, 1.1], [4.0, 3.0, 2.0, 1.5, 1.2, 1.1]],
    0.2: [[4.0, 2.0, 1.0, 0.8, 0.6, 0.4], [4.0, 2.5, 1.5, 1.0, 0.9, 0.8]],
    0.4: [[4.0, 1.0, 9.0, 9.0, 9.0, 9.0], [4.0, None, 9.0, 9.0, 9.0, 9.0]],
}
ROWS = [{"study": "speed", "method": "one", "rate": 80.0, "used": 12, "together": 6}] + [
    {"study": "losses", "method": "one", "seed": seed, "lr": lr, "losses": each, "right": 40 + seed,
     "averaged": 45}
    for lr, seeds in LOSSES.items()
    for seed, each in enumerate(seeds)
]  # fmt: skip


def test_the_best_rate_has_the_fewest_examples_to_the_target_in_the_median():
    (one,) = at_best_rates(ROWS, target=1.5, over=2)
    assert (one.method, one.lr) == ("one", 0.2)
    assert one.examples == [36, 48]  # the mean of two is 1.5 after 3 batches, 1.25 after 4
    assert one.seconds == [36 / 80, 48 / 80]
    assert one.ends == pytest.approx([0.5, 0.85])


def test_where_no_rate_arrives_the_lowest_last_third_decides():
    (one,) = at_best_rates(ROWS, target=0.1, over=2)
    assert one.lr == 0.2 and one.examples == [math.inf, math.inf]


def test_the_fewest_examples_decide_before_the_lowest_end():
    fast = [{**row, "lr": 0.8, "losses": [1.0, 1.0, 9.0, 9.0, 9.0, 9.0]} for row in ROWS[1:3]]
    (one,) = at_best_rates([*ROWS, *fast], target=1.5, over=2)
    assert one.lr == 0.8 and one.examples == [24, 24] and one.ends == [9, 9]


def test_batches_that_are_done_when_a_worker_has_none_left_do_not_count():
    (one,) = at_best_rates([{**ROWS[0], "together": 3}, *ROWS[1:]], target=1.5, over=2)
    assert one.lr == 0.2 and one.examples == [36, math.inf] and one.ends == [1.0, 1.5]


def test_the_best_alpha_is_looked_for_at_each_rate():
    pairs = [{**row, "alpha": alpha} for row in ROWS[1:] for alpha in (0.1, 0.3)]
    for row in pairs:
        if (row["lr"], row["alpha"]) == (0.1, 0.3):
            row["losses"] = [1.0] * 6
    (one,) = at_best_rates([ROWS[0], *pairs], target=1.5, over=2)
    assert (one.lr, one.alpha, one.examples) == (0.1, 0.3, [24, 24])


def test_the_table_has_medians_with_their_spread_and_percentages(tmp_path):
    (tmp_path / "sweep.json").write_text(json.dumps({"made": {}, "rows": ROWS}))
    table = viz.compared_table(tmp_path / "sweep.json", target=1.5, over=2, of=50)
    row = table.iloc[0]
    assert row.alpha == "–"
    assert (row.rate, row.fewest, row.examples_to_target, row.most) == (0.2, 36, 42, 48)
    assert row.seconds == pytest.approx(42 / 80)
    assert (row["right (%)"], row["averaged (%)"]) == (81, 90)
    assert math.isnan(viz.compared_table(tmp_path / "sweep.json", target=0.1).seconds[0])
    bars = [one for one in viz.spectrum(table, target=1.5, over=2).data if one.mode == "markers"]
    assert (bars[0].error_x.array[0], bars[0].error_x.arrayminus[0]) == pytest.approx((6, 6))
