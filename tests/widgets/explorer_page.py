"""An explorer on an open page, and saved pages of explorers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import kernel

from dlviz.widgets.modules import joined, read

# Views of one model, whose requests a function `ask` answers, with the state that then is: as
# text, for to hand over lists and objects takes playwright longer than all else together.
LIVE = """([traits, views]) => {
    const calls = [];
    const fire = (event, given) => calls.forEach(([name, call]) => name === event && call(given));
    const model = {
        get: (name) => traits[name], save_changes() {},
        set(name, value) {
            traits[name] = value;
            fire(`change:${name}`);
        },
        on: (event, call) => calls.push([event, call]), off() {},
        send: (request) => ask(request).then((text) => {
            const [state, answer, controls] = JSON.parse(text);
            Object.assign(traits, controls);
            if (state !== traits.state) model.set("state", state);
            fire("msg:custom", answer);
        }),
    };
    window.model = model;
    document.body.replaceChildren();
    for (const view of views) {
        const el = document.body.appendChild(document.createElement("div"));
        el.className = view;
        frontEnd.render({ model, el });
    }
}"""
# Waits for two pictures of the page, each of which has a change of its own to show, however small:
# for a picture in which nothing changes a browser takes a sixtieth of a second.
PICTURES = """async () => {
    let spot = document.querySelector(".spot");
    if (!spot) {
        spot = document.documentElement.appendChild(document.createElement("i"));
        spot.className = "spot";
        const place = { position: "fixed", right: 0, bottom: 0, width: "1px", height: "1px" };
        Object.assign(spot.style, { ...place, pointerEvents: "none" });
    }
    for (let picture = 0; picture < 2; picture++) {
        spot.style.background = spot.style.background === "red" ? "blue" : "red";
        await new Promise(requestAnimationFrame);
        await new Promise((done) => {
            const { port1, port2 } = new MessageChannel();
            port1.onmessage = done;
            port2.postMessage("");
        });
    }
}"""
SETTLED = """() => [...document.querySelectorAll('.dlv')]
    .every((view) => view.dataset.asking === 'false')"""


def open_page(browser, explorer, entry, views=("one", "other")):
    """A page on which `views` of `explorer` are answered as by a kernel, once what they asked for
    is done, and the list that its errors go to; `entry` is the front end's module."""
    page, faults = browser.new_page(viewport={"width": 833, "height": 680}), []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_content(f"<style>{read('dlviz.css')}</style>")

    def answer(request):
        number = request.pop("id")
        found = kernel.ask(explorer, **request)
        while explorer.doing:
            time.sleep(0.05)
        controls = {name: getattr(explorer, name) for name in explorer.names}
        return json.dumps([explorer.state, {"id": number, **found}, controls], allow_nan=False)

    page.expose_function("ask", answer)
    code = joined(entry, "frontEnd")
    live = f"(given) => {{ {code}\n({LIVE})(given); }}"
    page.evaluate(live, [explorer.get_state(), views])
    return page, faults


class ExplorerPage:
    """What all explorers have: named controls, sliders and fields."""

    def __init__(self, page, place=0):
        self.page, self.root = page, page.locator(".dlv").nth(place)

    def control(self, name):
        return self.root.get_by_label(name, exact=True).first

    def slide(self, name, value):
        self.control(name).evaluate(
            "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }",
            str(value),
        )

    def enter(self, name, text):
        field = self.control(name)
        field.fill(text)
        field.blur()


pages: WeakKeyDictionary[Any, tuple[Any, list[str]]] = WeakKeyDictionary()  # one a browser


def only_page(browser, **viewport):
    """The one page of a browser on which tests open their files, as new, and the list of what goes
    wrong on it: errors, and what it fetches. A page of its own for each takes longer to make than
    most of them take."""
    if browser not in pages:
        page, faults = browser.new_page(), []
        page.on("request", lambda asked: asked.url.startswith("file:") or faults.append(asked.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        pages[browser] = page, faults
    page, faults = pages[browser]
    page.mouse.move(0, 0)
    page.set_viewport_size({"width": 1200, "height": 900, **viewport})
    return page, faults


@contextmanager
def saved_pages(browser, folder, Page, wait) -> Iterator:
    """Opens the saved page of an explorer as a `Page`, in place of the one before it, once `wait`
    of the open page has returned; in the end no error was logged and nothing was fetched."""

    def show(explorer, **viewport):
        page, _ = only_page(browser, **viewport)
        page.goto(explorer.save_html(folder / "explorer.html").as_uri())
        wait(page)
        return Page(page)

    page, faults = only_page(browser)
    faults.clear()
    yield show
    page.goto("about:blank")  # nothing goes on moving
    assert not faults
