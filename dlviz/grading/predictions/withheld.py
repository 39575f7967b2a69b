"""The display of a result that waits for its prediction: a sentence and a button.

The sentence becomes the result when a number is typed or the button is pressed. A notebook
reopened without a kernel shows only the sentence.
"""

from __future__ import annotations

import html
import uuid
from collections.abc import Callable

VIEW = "application/vnd.jupyter.widget-view+json"
# Without a kernel Jupyter would show "model not found" in place of the button.
SENTENCE = """<div class="dlv-waits-{key}" style="white-space: pre-wrap; \
font-family: var(--jp-code-font-family, monospace)">{text}</div>
<style>
.jp-OutputArea-child:has(.dlv-waits-{key}) + .jp-OutputArea-child:not(:has(button)) {{
  display: none;
}}
</style>"""


def show(
    text: Callable[[], str], open: Callable[[], None], when_opened: Callable[[Callable], None]
) -> None:
    """Display the text, which `open` changes, and below it the button that opens the result
    without a prediction; `when_opened` gets a function to call once it is open."""
    import ipywidgets
    from IPython.display import display

    key = uuid.uuid4().hex

    def content() -> dict[str, str]:
        page = SENTENCE.format(key=key, text=html.escape(text()))
        return {"text/plain": text(), "text/html": page}

    button = ipywidgets.Button(
        description="show the result without a prediction", layout={"width": "auto"}
    )
    sentence = display(content(), raw=True, display_id=True)
    assert sentence is not None  # as it has an id

    def opened() -> None:
        button.layout.display = "none"
        sentence.update(content(), raw=True)

    button.on_click(lambda _: open())
    when_opened(opened)
    view = (button._repr_mimebundle_() or {})[VIEW]
    display({VIEW: view, "text/html": ""}, raw=True)  # a page without a kernel shows nothing
