"""The first lab in a real JupyterLab: all cells run, figures are drawn, no request leaves."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from lab_server import Lab

LAB = Path(__file__).parents[2] / "labs" / "00_start_here.ipynb"
FIGURES = ("viz.curve(", "viz.breakdown(")
WIDGETS = ("widgets.Timeline(", "widgets.MessagePlayer(")
APART = """facts => [...facts.children].map(({ children: [name, value] }) => {
    const [one, other] = [name, value].map(part => {
        const words = document.createRange();
        words.selectNodeContents(part);
        return words.getBoundingClientRect();
    });
    return one.width > 0 && one.right < other.left && Math.abs(one.top - other.top) < 3;
})"""  # of each fact whether the words of its value lie right of those of its name
MARKS = ".js-plotly-plot .point, .js-plotly-plot .scatterlayer .js-line"


@pytest.mark.slow
@pytest.mark.sweep
def test_the_lab_runs_in_jupyterlab_and_only_the_deadlock_fails(browser, served):
    notebook = nbformat.read(LAB, as_version=4)
    with served(notebook) as address:
        lab = Lab(browser, address, cells=len(notebook.cells))
        try:
            cells = lab.cells()
            drawn = {}
            for i, cell in enumerate(cells):
                last = cell["source"].splitlines()[-1]
                if any(name in last for name in FIGURES):
                    lab.shown(i).locator(MARKS).first.wait_for(state="attached")
                    drawn[i] = "figure"
                if any(name in last for name in WIDGETS):
                    lab.shown(i).locator(".dlv canvas, .dlv svg").first.wait_for()
                    drawn[i] = "widget"
            widgets = [i for i, kind in drawn.items() if kind == "widget"]
            answers = answered(lab, widgets)
            painted = in_the_dark(lab, widgets[1:])
        finally:
            lab.page.close()

    assert all(corner == paper and sum(paper) < 150 for corner, paper in painted), painted
    assert answers["rank 2 after step 2"] == [
        "rank 2, chunk 0: holds rank 0, rank 1, rank 2; contents 31, 62, 93",
        "rank 2, chunk 1: holds rank 1, rank 2; contents 120, 150, 180",
        "rank 2, chunk 2: holds rank 2; contents 175, 25, 50",
        "rank 2, chunk 3: holds every rank once; contents 468, 624, 780",
    ]
    assert re.fullmatch(
        r"Rank \d waited longest: [\d.]+ [mµ]?s for (rank \d|its own lane comm)"
        r"( ← (rank \d|its own lane comm))*(;| ← …:) .+",
        answers["longest wait of step 3"],
    )
    assert answers["player follows"] == answers["message selected in the timeline"] != ""
    assert len(answers["facts apart"]) > 2 and all(answers["facts apart"]), answers["facts apart"]
    assert answers["source"] == "    dlviz.collectives.ring.all_reduce(comm, tensor)"

    failed = [cell for cell in cells if any(o["output_type"] == "error" for o in cell["outputs"])]
    assert [cell["source"].startswith("def everybody_receives_first") for cell in failed] == [True]
    (error,) = failed[0]["outputs"]
    said = " ".join("\n".join(error["traceback"]).split())  # its lines may be broken
    assert error["ename"] == "DeadlockError"
    assert said.startswith("DeadlockError: deadlock: no rank can go on")
    assert said.count("cell line 4: comm.recv(token, src=left)") == 4 and "Traceback" not in said
    assert said.endswith(
        "cycle: rank 0 waits for rank 3 waits for rank 2 waits for rank 1 waits for rank 0"
    )

    assert sorted(drawn.values()) == ["figure"] * 2 + ["widget"] * 6, drawn
    assert lab.complaints == []
    assert lab.far() == []


def answered(lab, widgets):
    """What the lab asks of its reader, answered from the widgets alone."""
    player, ring, few = (lab.shown(i).locator(".dlv") for i in widgets[:3])
    lab.shown(widgets[0])
    player.focus()
    for _ in range(3):
        lab.page.keyboard.press("ArrowRight")
    found = {}
    holds = player.locator("[role=gridcell][data-cell^='2:'] > *")
    found["rank 2 after step 2"] = holds.evaluate_all("all => all.map(c => c.ariaLabel)")

    lab.shown(widgets[1])
    ring.get_by_role("button", name="show the lines of source").click()
    ring.focus()
    for _ in range(20):
        lab.page.keyboard.press(".")
        ring.locator("dl dt").first.wait_for()
        if message := ring.get_attribute("data-message"):
            break
    found["message selected in the timeline"] = message
    chosen = player.locator("button.dlv-chosen[data-message]").first
    chosen.wait_for(state="attached")
    found["player follows"] = chosen.get_attribute("data-message")
    found["source"] = ring.locator("li[aria-current=true] code").text_content()
    found["facts apart"] = ring.locator("dl.dlv-facts").evaluate(APART)

    lab.shown(widgets[2])
    few.get_by_label("step", exact=True).select_option("3")
    found["longest wait of step 3"] = few.locator(".dlv-longest").text_content()
    return found


def in_the_dark(lab, timelines):
    """What the Timelines' pictures and their page are painted on after a change of the theme."""
    lab.page.evaluate(
        "() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })"
    )
    lab.page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
    found = []
    for i in timelines:
        root = lab.shown(i).locator(".dlv[data-theme=dark]")
        root.wait_for()
        lab.page.wait_for_timeout(200)
        found.append(
            root.evaluate(
                """root => {
                    const canvas = root.querySelector(".dlv-canvas");
                    const [x, y] = [canvas.width - 1, canvas.height - 1];
                    const corner = canvas.getContext("2d").getImageData(x, y, 1, 1).data;
                    const paper = getComputedStyle(root).backgroundColor.match(/\\d+/g);
                    return [[...corner].slice(0, 3), paper.slice(0, 3).map(Number)];
                }"""
            )
        )
    return found
