"""The explorers that have controls, as they begin."""

from __future__ import annotations

import asyncio

from dlviz import widgets
from dlviz.widgets.explorer import Explorer


async def begun() -> dict[str, Explorer]:
    """One of each, by name, made as a kernel makes them: what they would look ahead to waits."""
    owns = {name: getattr(widgets, name) for name in widgets.__all__}
    made = {name: own() for name, own in owns.items() if issubclass(own, Explorer)}
    return {name: explorer for name, explorer in made.items() if explorer.described()}


loop = asyncio.new_event_loop()
EXPLORERS = loop.run_until_complete(begun())
loop.close()
