"""A widget as one HTML file that needs no network and no kernel."""

from __future__ import annotations

import html
import json
from typing import Any

from dlviz.viz import palette
from dlviz.widgets.modules import joined, read

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
html {{ color-scheme: light dark; }}
body {{ margin: 0; }}
{themes}
main {{ max-width: 1500px; margin: auto; }}
{css}
</style>
</head>
<body>
<main id="dlviz"><noscript>This page draws with JavaScript, which is switched off.</noscript></main>
<script type="application/json" id="state">{state}</script>
<script type="module">
{code}
open(frontEnd, document.getElementById("dlviz"), document.getElementById("state").textContent);
</script>
</body>
</html>
"""
THEME = 'html:has(#dlviz > [data-theme="{name}"]) {{ color-scheme: {name}; background: {paper}; }}'
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def page(title: str, module: str, traits: dict[str, Any]) -> str:
    """The page that shows front end `module` with `traits` as its model's state."""
    state = json.dumps(traits, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return PAGE.format(
        policy=POLICY,
        title=html.escape(f"{title} - dlviz"),
        themes="\n".join(THEME.format(name=name, **own) for name, own in palette.THEMES.items()),
        css=read("dlviz.css"),
        state=state,
        code=f"{joined(module, 'frontEnd')}\n{joined('shared/page', 'open')}",
    )
