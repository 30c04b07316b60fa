// What the page asks for: predictions, samples, oracles.

"use strict";

let models;

const ANSWERS = {
  async load({ facts, weights }) {
    models = await readModels(facts, weights);
  },

  predict: ({ model, task, fixed }) => predict(models[model], task, fixed),

  samples: ({ model, task, fixed, count }) => Array.from({ length: count }, () => sample(models[model], task, fixed)),

  oracle({ which, source, task, truth }) {
    const mixtures = (which === "bayes" ? bayes : equivariantOracle)(source, task);
    const logDensities = truth?.map((y, i) => (y === null ? null : mixtureLogDensity(mixtures[i], y)));
    return { ...momentsOf(mixtures), logDensities };
  },

  draw: ({ source, x }) => drawFunction(source, x),
};

self.onmessage = async ({ data: { id, kind, request } }) => {
  const start = performance.now();
  try {
    const answer = await ANSWERS[kind](request);
    self.postMessage({ id, answer, milliseconds: performance.now() - start });
  } catch (error) {
    self.postMessage({ id, error: String(error) });
  }
};

/** A coherent sample: values are drawn at places far apart, more at a time as they become more, then joined. */
function sample(model, task, fixed, places = 48) {
  const order = farthestFirst(task, places);
  const [x, y] = [Array.from(task.x), Array.from(task.y)];
  for (let start = 0; start < order.length; ) {
    const some = order.slice(start, start + 1 + Math.floor(start / 3)).map((i) => task.xt[i]);
    const { mean, sd } = predict(model, { x, y, xt: task.xt, some }, fixed);
    x.push(...some);
    y.push(...Array.from(mean, (value, i) => value + sd[i] * normal()));
    start += some.length;
  }
  return predict(model, { x, y, xt: task.xt }, fixed).mean;
}

/** The numbers of targets on the line, each the farthest from the context and from those before it. */
function farthestFirst({ x, xt }, count) {
  const distance = Array.from(xt, (at) => Math.min(Infinity, ...Array.from(x, (xi) => Math.abs(xi - at))));
  const order = [];
  while (order.length < Math.min(count, xt.length)) {
    const next = distance.indexOf(Math.max(...distance));
    order.push(next);
    distance.forEach((d, i) => { distance[i] = Math.min(d, Math.abs(xt[i] - xt[next])); });
    distance[next] = -1;
  }
  return order;
}
