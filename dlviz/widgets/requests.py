"""Requests of front ends to a widget: messages, each with an `id` that its answer repeats.

    {"id": "k3x-7", "kind": "change", "values": {"ranks": 17}}
    {"id": "k3x-7", "error": "ranks=17 has to be a whole number from 2 to 16."}

An answer goes to all views of the widget; the one that asked takes it. What a request changes
reaches all views as traits, before the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

from ipywidgets import Widget
from traitlets import TraitError

from dlviz.viz.words import text

Answer = dict[str, Any] | Future[dict[str, Any]] | None
BROKEN = {"error": "The kernel failed: its log says why."}


def answer_requests(
    widget: Widget, kinds: Mapping[str, Callable[..., Answer]], lock: AbstractContextManager[Any]
) -> None:
    """Have `widget` answer requests, one at a time under `lock`. `kinds[kind]` takes a request's
    fields and returns the answer, or a Future where that takes longer (cancelled: an empty answer).
    A ValueError is answered with its sentence."""

    def hear(_: Widget, request: dict[str, Any], buffers: Any) -> None:
        fields = {**request}
        number, kind = fields.pop("id"), fields.pop("kind")
        found: Answer = BROKEN
        try:
            with lock:
                found = kinds[kind](**fields)
        except (ValueError, TraitError) as error:
            found = {"error": sentence(error)}
        finally:
            if isinstance(found, Future):
                found.add_done_callback(
                    lambda done: send(number, {} if done.cancelled() else done.result())
                )
            else:
                send(number, found or {})

    def send(number: str, found: dict[str, Any]) -> None:
        widget.send({"id": number, **found})

    widget.on_msg(hear)


def sentence(error: BaseException) -> str:
    """An error on one line."""
    return text.short(str(error) or type(error).__name__, 300)
