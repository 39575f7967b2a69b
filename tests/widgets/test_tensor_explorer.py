"""The explorer of tensor parallelism: what it prices, draws and runs, and every control."""

from __future__ import annotations

import json

import kernel
import node
import numpy as np
import pytest
import torch
from explorer_page import SETTLED, ExplorerPage, open_page, saved_pages
from timing import changed_within
from torch import nn

import dlviz
from dlviz.metrics import step_seconds
from dlviz.sim.layer_cuts import FORMS, NAMES, PHASES, SIZES, elements, sent
from dlviz.sim.layers import layer_bytes, layer_elements
from dlviz.widgets import TensorExplorer
from dlviz.widgets.tensor.explorer import check
from dlviz.widgets.tensor.picture import DIMS, PICTURES, picture
from dlviz.widgets.tensor.run import LR, STEPS, blocks_of, train
from dlviz.widgets.view import identity

LAYER = {"batch": 64, "inputs": 512, "outputs": 2048}
SMALL = {"ranks": 3, "batch": 12, "inputs": 9, "outputs": 15}
ODD = {"ranks": 3, "batch": 10, "inputs": 10, "outputs": 15}  # no three equal chunks of B·C_in


def state(explorer):
    return json.loads(explorer.state)


def price(explorer, form):
    return next(one for one in state(explorer)["prices"] if one["form"] == form)


def test_a_rank_sends_what_the_lecture_counts():
    """X(64, 512) · W(512, 2048) on 4 ranks, float32."""
    explorer = TensorExplorer("data", **LAYER)
    assert price(explorer, "data")["bytes"] == 6_291_456
    assert price(explorer, "partition_output")["bytes"] == 196_608
    assert price(explorer, "partition_output_whole")["bytes"] == 196_608
    assert price(explorer, "reduce_output")["bytes"] == 786_432
    for form in ("data", "partition_output", "reduce_output"):
        own = price(explorer, form)
        assert own["bytes"] == sum(own["directions"]) == layer_bytes(form, *LAYER.values(), ranks=4)
        assert elements(form, **LAYER) == layer_elements(form, *LAYER.values())
    assert "B > C_out = 2,048" in state(explorer)["answer"]
    assert "B > C_in = 512" in state(explorer)["answer"]
    drawn = explorer.picture()
    (axes,), (legend,) = drawn.axes, drawn.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "data parallel", "partition output, X cut or not", "reduce output"
    ]  # fmt: skip
    assert len(axes.lines) == 3 and axes.get_xlabel() == "rows of X, B"
    explorer.ranks = 1
    assert {one["bytes"] for one in state(explorer)["prices"]} == {0}


def test_an_mlp_sends_as_its_two_layers_do():
    one, other = (64, 512, 2048), (64, 2048, 512)
    two = {
        "mlp_data": ("data", "data"),
        "mlp": ("partition_output", "reduce_output"),
    }
    for form, layers in two.items():
        sums = [sum(layer_elements(layers[0], *one)), sum(layer_elements(layers[1], *other))]
        assert sum(elements(form, *one)) == sum(sums)
    assert elements("mlp", *one) == (2 * 64 * 512, 2 * 64 * 512, 0)


VALUES = {"B": 64, "C_in": 512, "C_out": 2048}


@pytest.mark.parametrize("form", FORMS)
def test_the_symbols_in_the_table_come_to_its_elements(form):
    symbols = [
        np.prod([VALUES.get(part) or int(part) for part in product.split("·")])
        for product in FORMS[form].elements
    ]
    assert tuple(symbols) == elements(form, **LAYER)


@pytest.mark.parametrize("form", ["data", "mlp"])
def test_the_map_turns_where_two_forms_send_as_much(form):
    explorer = TensorExplorer(form, **LAYER)
    reported = state(explorer)["map"]
    mlp = FORMS[form].mlp
    for outputs, best, batch in zip(
        reported["columns"], reported["best"], reported["threshold"], strict=True
    ):
        every = {name: own for name, own in FORMS.items() if own.mlp == mlp}
        for rows, least in ((batch, {best, reported["data"]}), (batch / 2, {best}),
                            (2 * batch, {reported["data"]})):  # fmt: skip
            sums = {name: sum(elements(name, 2, 512, outputs)) / 2 * rows for name in every}
            sums[reported["data"]] = sum(elements(reported["data"], 1, 512, outputs))
            assert least <= {name for name, own in sums.items() if own == min(sums.values())}
    for line in reported["lines"]:
        for batch, outputs in line["ends"]:
            here = {"B": batch, "C_in": 512, "C_out": outputs}
            one, other = line["says"].split(" = ")
            assert here[one] == here[other]
    assert len(reported["lines"]) == (1 if mlp else 3)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("form", "rows", "form='rows' is unknown: use one of data, partition_output,"),
        ("ranks", 9, "ranks=9 is unknown: use one of 1, 2, 3, 4, 5, 6, 7, 8"),
        ("ranks", 3, r"outputs=2048 \(C_out\) cannot be split over 3 ranks: each rank needs a "
                     r"whole number of columns of W. Use 1, 2, 4 or 8 ranks, or outputs=2046 or "
                     r"2049."),
        ("batch", 0, r"batch=0 \(B\) has to be a whole number from 1 to 4096"),
        ("batch", 2.5, r"batch=2.5 \(B\) has to be"),
        ("batch", 3, r"batch=3 \(B\) .* rows of X. Use 1 or 3 ranks, or batch=4."),
        ("inputs", "wide", r"inputs='wide' \(C_in\) has to be"),
        ("outputs", True, r"outputs=True \(C_out\) has to be"),
    ],
)  # fmt: skip
def test_an_invalid_value_shows_an_error_and_changes_nothing(name, value, says):
    explorer = TensorExplorer("partition_output", **LAYER)
    before = state(explorer)
    with pytest.raises(ValueError, match=says) as refused:
        TensorExplorer(**{**before["controls"], name: value})
    setattr(explorer, name, value)
    after = state(explorer)
    assert after["error"] == str(refused.value) and after["matrices"] == before["matrices"]
    setattr(explorer, name, before["controls"][name])
    assert state(explorer) == before


@pytest.mark.parametrize("form", FORMS)
def test_the_blocks_of_the_ranks_make_up_each_matrix(form):
    for ranks in (1, 3, 8):
        explorer = TensorExplorer(form, ranks, 24, 48, 72)
        sizes = {"batch": 24, "inputs": 48, "outputs": 72}
        rows = state(explorer)["matrices"]
        for matrix in filter(None, rows[0] + rows[1]):
            dims = DIMS[FORMS[form].mlp][matrix["name"].removeprefix("d")]
            assert matrix["shape"] == [sizes[dim] for dim in dims]
            held = np.zeros(matrix["shape"])
            for top, bottom, left, right in matrix["blocks"]:
                held[top:bottom, left:right] += 1
            assert len(matrix["blocks"]) == ranks
            assert (held == (ranks if matrix["cut"] in ("whole", "sum") else 1)).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_collectives_drawn_send_what_the_table_says(form):
    explorer = TensorExplorer(form, **LAYER)
    forward, backward = state(explorer)["matrices"]
    sums = [sum(one.get("bytes", 0) for one in row if one) for row in (forward, backward)]
    directions = sent(form, 4, **LAYER)
    assert sums == [directions[0], directions[1] + directions[2]]
    for cells in PICTURES[form]:  # what a collective moves is the same matrix before and after
        for before, after in zip(cells, cells[1:], strict=False):
            if before and after and before.sign in ("→", "←"):
                assert before.name == after.name and before.cut != after.cut


@pytest.mark.parametrize(("form", "ranks"), [("partition_output", 4), ("mlp", 8), ("mlp_data", 2)])
def test_blocks_lie_in_their_matrix_and_matrices_beside_each_other(form, ranks):
    reported = state(TensorExplorer(form, ranks, **LAYER))
    width, height = 520, 222
    drawn = node.run("tensor/geometry.js", "return m.pictureOf(...v);", reported, width, height)
    sides = {}
    for placed in drawn["matrices"]:
        matrix, sheets = placed["matrix"], placed["sheets"]
        assert [sheet["rank"] for sheet in sheets] == [*range(ranks)][::-1]  # rank 0 in front
        for sheet in sheets:
            assert sheet["x"] >= placed["x"] - 1e-6 and sheet["y"] >= placed["y"] - 1e-6
            right, bottom = sheet["x"] + sheet["width"], sheet["y"] + sheet["height"]
            assert right <= placed["x"] + placed["width"] + 1e-6 <= width
            assert bottom <= placed["y"] + placed["height"] + 1e-6 < placed["made"] < height
        spots = {(sheet["x"], sheet["y"]) for sheet in sheets}
        assert len(spots) == ranks  # no sheet hides another
        front = sheets[-1]
        whole = matrix["cut"] in ("whole", "sum")
        across, down = (1 if whole else ranks if matrix["cut"] == cut else 1
                        for cut in ("columns", "rows"))  # fmt: skip
        for dim, side in zip(
            matrix["dims"], (front["height"] * down, front["width"] * across), strict=True
        ):
            assert side == pytest.approx(sides.setdefault(dim, side))  # of one length everywhere
    assert sides["outputs"] > sides["inputs"] > sides["batch"]
    rows = [[p for p in drawn["matrices"] if p["matrix"]["name"].startswith("d") == back]
            for back in (False, True)]  # fmt: skip
    for row in rows:
        for one, other in zip(row, row[1:], strict=False):
            assert one["x"] + one["width"] < other["x"]
    ends = [(arrow["x1"], arrow["x2"], arrow["matrix"]["goes"]) for arrow in drawn["arrows"]]
    assert len(ends) == sum("goes" in one for row in reported["matrices"] for one in row if one)
    assert all((two - one) * goes > 0 for one, two, goes in ends)


IN_REGION = """
const drawn = m.mapOf(v[0], 300, 220);
const inside = (points, px, py) => points.reduce((odd, [ax, ay], i) => {
  const [bx, by] = points[(i + 1) % points.length];
  return (ay > py) !== (by > py) && px < ax + ((py - ay) / (by - ay)) * (bx - ax) ? !odd : odd;
}, false);
return v[1].map(([batch, outputs]) => drawn.regions
  .filter(({ points }) => inside(points, drawn.x(batch), drawn.y(outputs)))
  .map(({ form }) => form));
"""


@pytest.mark.parametrize("form", ["reduce_output", "mlp"])
def test_a_point_of_the_map_lies_in_the_region_of_who_sends_least(form):
    reported = state(TensorExplorer(form, **LAYER))
    points = [(b, o) for b in (1.1, 7, 100, 600, 3000) for o in (1.3, 20, 400, 700, 2500)]
    found = node.run("tensor/geometry.js", IN_REGION, reported, points)
    names = [reported["map"]["data"], *set(reported["map"]["best"])]
    for (batch, outputs), regions in zip(points, found, strict=True):
        sums = {name: sum(FORMULAS[name](batch, 512, outputs)) for name in names}
        assert regions == [min(sums, key=sums.__getitem__)]


LABELS = """
return v[1].flatMap(([batch, outputs]) => [206, 300].map((width) => {
  const map = m.mapOf(v[0], width, 176);
  return m.labelsOf(map, (form) => form.replace("_", " "), [map.x(batch), map.y(outputs)]);
}));
"""


@pytest.mark.parametrize("inputs", [4, 64, 512, 2048])
def test_no_name_on_the_map_covers_another_wherever_the_lines_are(inputs):
    reported = state(TensorExplorer("partition_output", **{**LAYER, "inputs": inputs}))
    sizes = [(1, 1), (64, 2048), (512, 64), (4096, 4096)]
    for labels in node.run("tensor/geometry.js", LABELS, reported, sizes):
        assert len(labels) >= 3
        for i, one in enumerate(labels):
            for other in labels[i + 1 :]:
                apart = one["right"] <= other["left"] or other["right"] <= one["left"]
                assert apart or one["bottom"] <= other["top"] or other["bottom"] <= one["top"]


FORMULAS = {  # of the lecture, for sizes that are not whole
    "data": lambda batch, inputs, outputs: (2 * inputs * outputs,),
    "partition_output": lambda batch, inputs, outputs: (batch * inputs, batch * inputs),
    "reduce_output": lambda batch, inputs, outputs: (2 * batch * outputs,),
    "mlp_data": lambda batch, inputs, outputs: (2 * inputs * outputs,) * 2,
    "mlp": lambda batch, inputs, outputs: (2 * batch * inputs,) * 2,
}


def test_a_slider_gives_sizes_that_the_ranks_can_divide():
    reported = state(TensorExplorer())
    code = """const names = ["batch", "inputs", "outputs"];
    return v[1].map((controls) => v[0].sizes.map((size) =>
      names.map((name) => m.fitting(v[0], controls, name, size))));"""
    chosen = [{"form": form, "ranks": ranks} for form in FORMS for ranks in (1, 3, 7, 8)]
    found = node.run("tensor/state.js", code, reported, chosen)
    for controls, sizes in zip(chosen, found, strict=True):
        for own in sizes:
            check(**controls, **dict(zip(NAMES, own, strict=True)))  # raises where they cannot be
        assert len({tuple(own) for own in sizes}) >= len(SIZES) / 2


FORESEEN = """
const [reported, ahead, name, sizes] = v;
return sizes.map((size) => m.foresee(reported, { ...reported.controls, [name]: size }, ahead));
"""


@pytest.mark.parametrize(
    ("form", "name"), [("partition_output", "batch"), ("data", "inputs"), ("mlp", "outputs")]
)
def test_what_is_sent_ahead_along_a_slider_is_what_the_kernel_answers(form, name):
    explorer = TensorExplorer(form, **LAYER)
    reported = state(explorer)
    wanted = node.run("tensor/state.js", "return m.along(...v);", {"data": reported, "ahead": {}},
                      {name: 1})  # fmt: skip
    found = json.loads(json.dumps(kernel.ask(explorer, "ahead", **wanted)["ahead"]))
    now = {"data": reported, "ahead": found}
    assert node.run("tensor/state.js", "return m.along(...v);", now, {name: 1}) is None
    sizes = [*dict.fromkeys(wanted["sizes"])]
    assert wanted["name"] == name and len(sizes) >= 20
    foreseen = node.run("tensor/state.js", FORESEEN, reported, found, name, sizes)
    for size, shown in zip(sizes, foreseen, strict=True):
        setattr(explorer, name, size)
        assert shown == state(explorer)
    other = next(one for one in NAMES if one != name)
    setattr(explorer, other, 24)  # nothing was reported of that
    now = state(explorer)
    assert node.run("tensor/state.js", FORESEEN, now, found, name, sizes[:1]) == [now]
    ran = {**reported, "ran": reported["ran"] + 1}  # the map has another point
    assert node.run("tensor/state.js", FORESEEN, ran, found, name, sizes[:1]) == [ran]


def test_a_slider_is_answered_immediately_and_loads_no_torch():
    changes = [
        {name: 2**place} for place in range(3, 13) for name in ("batch", "inputs", "outputs")
    ]
    changed_within(0.05, 'widgets.TensorExplorer("mlp", ranks=8)', changes)


def every_form(comm, sizes):
    """The loss of each form."""
    return {form: train(comm, {"form": form, **sizes}) for form in FORMS}


def plain(mlp, batch, inputs, outputs, **_):
    """The loss of one process: of a layer, or of an MLP."""
    torch.manual_seed(0)
    layers = [nn.Linear(inputs, outputs, bias=False)]
    if mlp:
        layers += [nn.GELU(), nn.Linear(outputs, inputs, bias=False)]
    model = nn.Sequential(*layers)
    generator = torch.Generator().manual_seed(1)
    x, target = (
        torch.randn(batch, columns, generator=generator)
        for columns in (inputs, inputs if mlp else outputs)
    )
    rule = torch.optim.SGD(model.parameters(), LR)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(model(x), target)
        rule.zero_grad()
        loss.backward()
        rule.step()
    return loss.item()


def test_every_form_trains_the_same_layer_and_sends_what_is_predicted():
    run = dlviz.launch(every_form, 3, args=(SMALL,))
    for form, loss in run.results[0].items():
        assert loss == pytest.approx(plain(FORMS[form].mlp, **SMALL), rel=1e-5), form
    spans, nbytes = run.trace.spans, run.trace.messages.nbytes
    sends = np.flatnonzero((spans.kind == "send") & (spans.step >= 0))
    assert len(sends) == len(nbytes)
    for place, direction in enumerate(PHASES):
        own = [spans.flow[row] for row in sends if spans.fields[row]["direction"] == direction]
        predicted = sum(sent(form, **SMALL)[place] for form in FORMS)
        assert nbytes[own].sum() / 3 / STEPS == pytest.approx(predicted)


@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_a_run_is_measured_below_predicted_and_shown_again_where_its_controls_are():
    explorer = TensorExplorer("mlp", **ODD)
    before = state(explorer)
    explorer.run()
    told = state(explorer)
    run = told["run"]
    assert run["directions"] == pytest.approx(price(explorer, "mlp")["directions"])
    assert run["bytes"] == pytest.approx(price(explorer, "mlp")["bytes"])
    took = step_seconds(explorer.measured)
    assert np.median(took) == pytest.approx(price(explorer, "mlp")["seconds"], rel=0.01)
    assert (before["drawn"], told["drawn"]) == ("form", "run")
    assert told["matrices"] == before["matrices"]  # the ranks had what the form says
    assert "not of one size" in " ".join(run["summary"])
    messages, spans = explorer.measured.messages, explorer.measured.spans
    assert run["first"][2] == -1
    for first, direction in zip(run["first"][:2], PHASES, strict=False):
        sends = np.flatnonzero((spans.flow == first) & (spans.kind == "send"))
        assert [spans.fields[row]["direction"] for row in sends] == [direction]
    player = json.loads(explorer.player)
    assert player["trace"] == identity(explorer.measured)
    assert len(player["messages"]["row"]) == len(messages) / STEPS

    rows = np.flatnonzero([bool(fields and "w" in fields) for fields in spans.fields])
    spans.rank[rows] = (spans.rank[rows] + 1) % 3  # as if a rank had had another's blocks
    other = picture(before["controls"], blocks_of(explorer.measured))
    for one, now in zip(before["matrices"][0], other[0], strict=True):
        if one and one["name"] in ("W₁", "Z", "W₂"):
            assert now["blocks"] == [tuple(one["blocks"][rank]) for rank in (2, 0, 1)]

    explorer.outputs = 18
    assert state(explorer)["run"] is None and explorer.measured is None and explorer.player == ""
    assert state(explorer)["points"] == [{**before["controls"], "bytes": run["bytes"]}]
    explorer.outputs = 15
    assert state(explorer)["run"] == run and json.loads(explorer.player) == player
    blocks = explorer._runs[0]["run"]["blocks"]
    blocks["W₁"] = blocks["W₁"][::-1]
    explorer.show()  # what the run had, whatever the form says
    for one, now in zip(before["matrices"][0], state(explorer)["matrices"][0], strict=True):
        if one and one["name"] == "W₁":
            assert now["blocks"] == one["blocks"][::-1]
    pages = json.loads(explorer.saved_state()["pages"])
    of = [(page["controls"], page["state"]) for page in pages]
    shown = {controls["form"]: new for controls, new in of if controls["ranks"] == 3}
    assert shown["mlp"]["run"]["directions"] == run["directions"]
    assert "batch=10 (B) cannot be split over 3 ranks" in shown["data"]["error"]


class Page(ExplorerPage):
    """What else this explorer has."""

    @property
    def answer(self):
        return self.root.locator(".dlv-cheapest").inner_text()

    def press(self, name):
        self.root.get_by_role("button", name=name, exact=True).click()

    def height(self):
        return self.root.bounding_box()["height"]

    def dim(self):
        """The ranks whose blocks do not stand out."""
        blocks = self.root.locator(".dlv-block.dlv-dim").all()
        return {block.get_attribute("data-block").split()[1] for block in blocks}


# What is asked waits until it is released.
HELD = """() => {
    const [send, held] = [model.send, []];
    model.send = (request) => held.push(request);
    window.release = () => (model.send = send, held.forEach(send));
}"""
BY_KEY = {  # from the sizes that were typed
    "B by key": ("batch", 128),
    "C_out by key": ("outputs", 512),
    "B by its slider's key": ("batch", 96),
}


@pytest.mark.sweep  # test_every_explorer moves every control
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
def test_every_control_answers_and_what_ran_is_shown_without_a_kernel(browser, tmp_path):
    explorer = TensorExplorer(**LAYER)
    page, faults = open_page(browser, explorer, "tensor/index")
    shown = Page(page)
    table = shown.root.locator(".dlv-amounts tbody")
    box = shown.root.locator(".dlv-sizes svg").bounding_box()
    changes = {
        "batch": lambda: shown.slide("B", 20),
        "inputs": lambda: shown.slide("C_in", 15),
        "outputs": lambda: shown.slide("C_out", 18),
        "batch typed": lambda: shown.enter("batch, rows", "100"),
        "inputs typed": lambda: shown.enter("inputs, inputs", "200"),
        "outputs typed": lambda: shown.enter("outputs, outputs", "400"),
        "ranks": lambda: shown.control("ranks").select_option("2"),
        "form": lambda: shown.control("form").select_option("mlp"),
        "form by its row": lambda: shown.press("MLP: data parallel"),
        "form by key": lambda: shown.root.press("f"),
        "B by key": lambda: shown.root.press("ArrowRight"),
        "C_out by key": lambda: shown.root.press("ArrowUp"),
        "B by its slider's key": lambda: shown.control("B").press("ArrowLeft"),
        "both on the map": lambda: page.mouse.click(box["x"] + 140, box["y"] + 120),
    }
    for name, change in changes.items():
        before = state(explorer)["controls"]
        change()
        page.wait_for_function(SETTLED)
        reported = state(explorer)
        assert reported["controls"] != before and not reported["error"], name
        now = next(one for one in reported["prices"] if one["form"] == reported["controls"]["form"])
        assert f"{now['bytes']:,.10g} bytes" in shown.answer, name
        assert f"{now['bytes']:,.10g}" in table.locator("[aria-selected=true]").inner_text(), name
        assert shown.height() <= 640, name
        if name in BY_KEY:
            control, value = BY_KEY[name]
            assert reported["controls"][control] == value, name
    assert {"ArrowRight", "ArrowUp"} and page.locator(
        ".other .dlv-cheapest"
    ).inner_text() == shown.answer

    first = {"B": lambda: shown.slide("B", 5), "C_in": lambda: shown.control("C_in").focus()}
    for name, begin in first.items():  # a slider that moved, and one that is to move
        begin()
        page.wait_for_function(SETTLED)
        page.evaluate("ask({ id: 'last', kind: 'settle' })")  # answered after all before it
        page.evaluate(HELD)
        for place in (9, 6):
            said = shown.answer
            shown.slide(name, place)
            assert shown.answer != said  # the kernel has not answered
        page.evaluate("release()")
        page.wait_for_function(SETTLED)

    shown.press("rank 1")
    assert shown.dim() == {"0"}
    assert "Rank 1:" in shown.root.locator(".dlv-owners .dlv-about").inner_text()
    shown.root.press("n")
    assert shown.dim() == set()
    shown.root.press("n")
    assert shown.dim() == {"1"}
    shown.root.press("Escape")
    assert shown.dim() == set()
    block = shown.root.locator("[data-matrix=Z] [data-block$=' 1']")
    block.hover()
    assert shown.dim() == {"0"}
    assert shown.root.locator(".dlv-tip strong").inner_text().startswith("rank 1: ")
    page.mouse.move(1, 1)
    assert shown.dim() == set() and not shown.root.locator(".dlv-tip").is_visible()

    shown.enter("outputs, outputs", "wide")
    page.wait_for_function("() => document.querySelector('.dlv-trouble').textContent")
    assert "C_out = “wide” has" in shown.root.locator(".dlv-trouble").inner_text()
    assert shown.height() <= 640
    shown.enter("outputs, outputs", "4096")
    shown.slide("C_in", 23)
    shown.slide("B", 23)
    page.wait_for_function(SETTLED)
    assert "can be run here: use a smaller" in shown.root.locator(".dlv-result").inner_text()
    assert shown.control("run it on real ranks").is_disabled()

    shown.control("form").select_option("partition_output")
    for name, text in (("batch, rows", "8"), ("inputs, inputs", "12"), ("outputs, outputs", "16")):
        shown.enter(name, text)
    page.wait_for_function(SETTLED)
    shown.root.press("m")
    assert "not run" in shown.root.locator("[aria-label=messages]").inner_text()
    shown.root.press("r")
    page.wait_for_function("() => document.querySelector('.dlv-ran')")
    measured = shown.root.locator(".dlv-ran td").all_inner_texts()
    assert measured[:4] == ["192", "192", "0", "384"]
    assert shown.height() <= 640
    assert "as the run's Trace says" in shown.root.locator(".dlv-owners .dlv-about").inner_text()
    page.evaluate("text => model.set('player', text)", explorer.player)
    shown.root.locator(".dlv-opens").last.click()
    player = shown.root.locator(".dlv-player")
    assert player.is_visible() and not table.is_visible()
    selected = page.evaluate("model.get('selection').message")
    assert selected == state(explorer)["run"]["first"][1]  # that of the backward
    assert player.locator(".dlv-chosen").count()
    page.close()

    explorer.batch = 9  # with what is wrong it is as high as it gets
    with saved_pages(
        browser, tmp_path, Page, lambda own: own.wait_for_selector(".dlv-block")
    ) as show:
        saved = show(explorer, width=833, height=680)
        assert saved.root.locator(".dlv-trouble").inner_text() and saved.height() <= 640
        explorer.form, explorer.ranks = "data", 4
        explorer.batch, explorer.inputs, explorer.outputs = LAYER.values()
        saved = show(explorer, width=833, height=680)
        root = saved.root
        assert "6,291,456" in saved.answer
        assert saved.control("ranks").is_disabled() and saved.control("B").is_disabled()
        saved.control("form").select_option("reduce_output")
        assert "786,432" in saved.answer and not root.locator(".dlv-ran").count()
        root.get_by_role("tab", name="Messages").click()
        assert not root.locator(".dlv-player").is_visible()
        root.get_by_role("tab", name="Costs").click()
        saved.control("recorded runs").select_option(index=1)
        assert root.locator(".dlv-ran td").all_inner_texts()[:4] == measured[:4]
        assert saved.control("B").input_value() != "" and "384 bytes" in saved.answer
        assert saved.height() <= 640
        root.get_by_role("tab", name="Messages").click()
        assert root.locator(".dlv-player h3").text_content().startswith("partition output, X cut")
        root.get_by_role("tab", name="Costs").click()
        root.focus()
        saved.page.keyboard.press("f")
        assert root.locator("[aria-selected=true] th").inner_text().endswith("X whole")
        saved.control("form").select_option("mlp_data")
        assert "cannot be" not in root.locator(".dlv-trouble").inner_text()
    assert not faults
