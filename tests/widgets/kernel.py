"""What a front end and its kernel say to each other: a widget asked in Python, a model in Node."""

from __future__ import annotations


def ask(widget, kind, **fields):
    """What `widget` answers a front end's request by the time that it has heard it."""
    answers = []
    widget.send = answers.append
    request = {"id": "view-1", "kind": kind, **fields}
    message = {"content": {"data": {"method": "custom", "content": request}}, "buffers": []}
    widget._handle_msg(message)
    assert all(answer.pop("id") == "view-1" for answer in answers)
    del widget.send
    (answer,) = answers
    return answer


MODEL = """
const signal = () => {
  const calls = new Set();
  return { connect: (call) => calls.add(call), disconnect: (call) => calls.delete(call),
    emit: (...given) => [...calls].forEach((call) => call(null, ...given)), calls };
};
const kernel = { statusChanged: signal(), disposed: signal() };
const traits = { doing: "" };
const [sent, unanswered] = [[], []]; // requests
const events = new Map();
const model = {
  widget_manager: { kernel },
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; },
  save_changes() {},
  send: (request) => [sent, unanswered].forEach((all) => all.push(request)),
  on: (name, call) => events.set(name, (events.get(name) ?? new Set()).add(call)),
  off: (name, call) => events.get(name)?.delete(call),
};
const fire = (name, told) => [...events.get(name) ?? []].forEach((call) => call(told));
const answer = (given = {}) => fire("msg:custom", { id: unanswered.shift().id, ...given });
const asked = () => sent.map(({ id, ...request }) => request);
"""
