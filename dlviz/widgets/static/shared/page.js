// Opens a front end on a saved page: a model that nobody else changes.

function open(frontEnd, el, text) {
  const traits = JSON.parse(text);
  const listeners = new Map();
  const model = {
    get: (name) => traits[name],
    set(name, value) {
      if (traits[name] === value) return;
      traits[name] = value;
      for (const call of listeners.get(`change:${name}`) ?? []) call();
    },
    on: (name, call) => listeners.set(name, (listeners.get(name) ?? new Set()).add(call)),
    off: (name, call) => listeners.get(name)?.delete(call),
    save_changes() {},
  };
  el.replaceChildren();
  return frontEnd.render({ model, el });
}

export default open;
