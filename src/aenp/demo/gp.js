// Tasks from a Gaussian process with the Gibbs kernel, as in aenp.data.gp, and their oracles, as in
// aenp.experiments.gp.oracles: `source` has {lengthscales: [short, long], noise, centre: [low, high], width, margin}.

"use strict";

const lengthscale = (source, left, shortLeft) => source.lengthscales[left === shortLeft ? 0 : 1];

function gibbs(x1, l1, x2, l2) {
  const scale = l1 ** 2 + l2 ** 2;
  return Math.sqrt((2 * l1 * l2) / scale) * Math.exp(Math.max(-((x1 - x2) ** 2) / scale, -30));
}

/** L with L Lᵀ = K, both row by row, for the kernel's matrix K with `jitter` added to its diagonal. */
function cholesky(x, scales, jitter) {
  const n = x.length;
  const factor = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = gibbs(x[i], scales[i], x[j], scales[j]) + (i === j ? jitter : 0);
      for (let k = 0; k < j; k++) sum -= factor[i * n + k] * factor[j * n + k];
      factor[i * n + j] = i === j ? Math.sqrt(sum) : sum / factor[j * n + j];
    }
  }
  return factor;
}

/** L⁻¹ b. */
function solve(factor, b) {
  const n = b.length;
  const out = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let sum = b[i];
    for (let k = 0; k < i; k++) sum -= factor[i * n + k] * out[k];
    out[i] = sum / factor[i * n + i];
  }
  return out;
}

/** What a context tells a GP with these lengthscales: L, L⁻¹ y and log N(y; 0, K) up to a constant. */
function learn(source, x, y, scales) {
  const factor = cholesky(x, scales, source.noise ** 2);
  const white = solve(factor, y);
  let evidence = 0;
  for (let i = 0; i < x.length; i++) evidence -= white[i] ** 2 / 2 + Math.log(factor[i * x.length + i]);
  return { x, scales, factor, white, evidence };
}

/** Mean and standard deviation of a noisy y at `at`, where the lengthscale is `scale`. */
function condition(source, { x, scales, factor, white }, at, scale) {
  const half = solve(factor, Array.from(x, (xi, i) => gibbs(xi, scales[i], at, scale)));
  let mean = 0, explained = 0;
  half.forEach((value, i) => {
    mean += value * white[i];
    explained += value ** 2;
  });
  return { mean, sd: Math.sqrt(1 + source.noise ** 2 - explained) };
}

/** For each target, the weighted Normals of the best prediction that knows the place, but not the orientation. */
function bayes(source, { x, y, xt }) {
  const known = [true, false].map((short) => ({
    short,
    ...learn(source, x, y, Array.from(x, (at) => lengthscale(source, at < 0, short))),
  }));
  return Array.from(xt, (at) => known.map((one) => ({
    weight: one.evidence,
    ...condition(source, one, at, lengthscale(source, at < 0, one.short)),
  })));
}

/** The same for the best equivariant prediction, to which the change point may lie anywhere. */
function equivariantOracle(source, { x, y, xt }) {
  const order = Array.from(x.keys()).sort((a, b) => x[a] - x[b]);
  const sorted = { x: order.map((i) => x[i]), y: order.map((i) => y[i]) };
  const known = gapsAndOrientations(source, sorted);
  const best = Math.max(...known.map((one) => one.evidence));
  const likely = known.filter((one) => one.evidence > best - 60);
  return Array.from(xt, (at) => normalsAt(source, sorted.x, likely, at));
}

/** What the context tells for the change point in each gap between its points, with either orientation. */
function gapsAndOrientations(source, { x, y }) {
  const out = [];
  for (let gap = 0; gap <= x.length; gap++) {
    for (const short of [true, false]) {
      out.push({ gap, short, ...learn(source, x, y, x.map((_, i) => lengthscale(source, i < gap, short))) });
    }
  }
  return out;
}

function normalsAt(source, x, likely, at) {
  const masses = gapMasses(source, x, at);
  const out = [];
  for (const one of likely) {
    for (const left of [true, false]) {
      const mass = masses[one.gap][left ? 0 : 1];
      if (mass > 0) {
        const normal = condition(source, one, at, lengthscale(source, left, one.short));
        out.push({ weight: one.evidence + Math.log(mass), ...normal });
      }
    }
  }
  return out;
}

/** The prior probability that the change point is in each gap, right and left of the target. */
function gapMasses(source, x, at) {
  const edges = [Math.min(at, ...x), ...x, Math.max(at, ...x)];
  const range = source.centre[1] - source.centre[0];
  const masses = edges.slice(1).map((end, gap) => {
    const split = Math.min(Math.max(at, edges[gap]), end);
    return [(end - split) / range, (split - edges[gap]) / range];
  });
  masses[0][1] = Math.max(0, 1 - masses.flat().reduce((a, b) => a + b));
  return masses;
}

/** Mean and standard deviation of mixtures of Normals, one for each target. */
function momentsOf(mixtures) {
  const moments = mixtures.map((normals) => {
    const weights = normalised(normals);
    const mean = normals.reduce((sum, normal, i) => sum + weights[i] * normal.mean, 0);
    const square = normals.reduce((sum, { mean: m, sd }, i) => sum + weights[i] * (sd ** 2 + (m - mean) ** 2), 0);
    return [mean, Math.sqrt(square)];
  });
  return { mean: moments.map(([mean]) => mean), sd: moments.map(([, sd]) => sd) };
}

function normalised(normals) {
  const largest = Math.max(...normals.map(({ weight }) => weight));
  const weights = normals.map(({ weight }) => Math.exp(weight - largest));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((weight) => weight / sum);
}

function mixtureLogDensity(normals, y) {
  const weights = normalised(normals);
  return Math.log(normals.reduce((sum, { mean, sd }, i) => sum + weights[i] * Math.exp(logDensity(mean, sd, y)), 0));
}

const logDensity = (mean, sd, y) => -0.5 * ((y - mean) / sd) ** 2 - Math.log(sd * Math.sqrt(2 * Math.PI));

function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

/** A function drawn at the places `x`, without noise; on which side its lengthscale is short is left to chance. */
function drawFunction(source, x) {
  const short = Math.random() < 0.5;
  const factor = cholesky(x, x.map((at) => lengthscale(source, at < 0, short)), 1e-6);
  const noise = x.map(normal);
  return x.map((_, i) => noise.slice(0, i + 1).reduce((sum, value, j) => sum + value * factor[i * x.length + j], 0));
}
