// The forward passes of TNP, PTTNP and ConvCNP, as in aenp.models.
//
// A table is {data: Float32Array, rows, cols}, row by row; a strip is {data, start, step, count}: rows within a table.
// Positions are flat arrays of doubles, `dim` numbers for each point. Sums are in double precision.

"use strict";

const CHUNK = 256; // targets whose tokens stay in the cache of a processor

const table = (rows, cols, data = new Float32Array(rows * cols)) => ({ data, rows, cols });
const strip = (t, start = 0, count = t.rows) => ({ data: t.data, start, step: t.cols, count });

// Linear algebra

/** out[r, c] = Σ_i a[r, i] b[c, i] for the rows r of strip a and c of strip b. */
function product(a, b, inner, out) {
  const block = a.count < 3 || b.count < 3 ? 1 : 3;
  const multiply = block === 1 ? multiplyOne : multiplyNine;
  for (let r = 0; r < a.count; r += block) {
    const row = Math.min(r, a.count - block);
    for (let c = 0; c < b.count; c += block) {
      const col = Math.min(c, b.count - block);
      const [from, to] = [a.start + row * a.step, out.start + row * out.step + col];
      multiply(a.data, from, a.step, b.data, b.start + col * b.step, b.step, inner, out.data, to, out.step);
    }
  }
}

function multiplyOne(a, i, _, b, j, __, inner, out, k) {
  let sum = 0;
  for (let n = 0; n < inner; n++) sum += a[i + n] * b[j + n];
  out[k] = sum;
}

/** Three rows by three columns: nine sums stay in registers, which is four times as fast as one sum at a time. */
function multiplyNine(a, i0, aStep, b, j0, bStep, inner, out, k0, outStep) {
  const [i1, i2, j1, j2] = [i0 + aStep, i0 + 2 * aStep, j0 + bStep, j0 + 2 * bStep];
  let s00 = 0, s01 = 0, s02 = 0, s10 = 0, s11 = 0, s12 = 0, s20 = 0, s21 = 0, s22 = 0;
  for (let n = 0; n < inner; n++) {
    const a0 = a[i0 + n], a1 = a[i1 + n], a2 = a[i2 + n];
    const b0 = b[j0 + n], b1 = b[j1 + n], b2 = b[j2 + n];
    s00 += a0 * b0; s01 += a0 * b1; s02 += a0 * b2;
    s10 += a1 * b0; s11 += a1 * b1; s12 += a1 * b2;
    s20 += a2 * b0; s21 += a2 * b1; s22 += a2 * b2;
  }
  const [k1, k2] = [k0 + outStep, k0 + 2 * outStep];
  out[k0] = s00; out[k0 + 1] = s01; out[k0 + 2] = s02;
  out[k1] = s10; out[k1 + 1] = s11; out[k1 + 2] = s12;
  out[k2] = s20; out[k2 + 1] = s21; out[k2 + 2] = s22;
}

function transpose({ data, rows, cols }, first = 0, count = cols) {
  const out = table(count, rows);
  for (let c = 0; c < count; c++) for (let r = 0; r < rows; r++) out.data[c * rows + r] = data[r * cols + first + c];
  return out;
}

function add(a, b) {
  for (let i = 0; i < a.data.length; i++) a.data[i] += b.data[i];
  return a;
}

function relu(t) {
  for (let i = 0; i < t.data.length; i++) if (t.data[i] < 0) t.data[i] = 0;
  return t;
}

/** A table of `count` equal rows. */
function repeatRow(row, count) {
  const out = table(count, row.length);
  for (let r = 0; r < count; r++) out.data.set(row, r * row.length);
  return out;
}

// Layers

function tensor(model, name) {
  const found = model.tensors[name];
  if (!found) throw new Error(`the model has no tensor ${name}`);
  return found;
}

function linear(model, name, x) {
  const { shape: [size], data } = tensor(model, `${name}.weight`);
  return affine(x, table(size, x.cols, data), model.tensors[`${name}.bias`]);
}

/** x Wᵀ + b; without b, x Wᵀ. */
function affine(x, weight, bias) {
  const out = table(x.rows, weight.rows);
  product(strip(x), strip(weight), weight.cols, strip(out));
  return bias ? addToRows(out, bias.data) : out;
}

function addToRows(t, row) {
  for (let r = 0, k = 0; r < t.rows; r++) for (let c = 0; c < t.cols; c++, k++) t.data[k] += row[c];
  return t;
}

function mlp(model, name, x) {
  let h = linear(model, `${name}.0`, x);
  for (let i = 2; `${name}.${i}.weight` in model.tensors; i += 2) h = linear(model, `${name}.${i}`, relu(h));
  return h;
}

function layerNorm(model, name, x) {
  const out = table(x.rows, x.cols);
  const [weight, bias] = [tensor(model, `${name}.weight`).data, tensor(model, `${name}.bias`).data];
  for (let k = 0; k < x.data.length; k += x.cols) {
    let mean = 0, square = 0;
    for (let c = 0; c < x.cols; c++) mean += x.data[k + c] / x.cols;
    for (let c = 0; c < x.cols; c++) square += (x.data[k + c] - mean) ** 2 / x.cols;
    const scale = 1 / Math.sqrt(square + 1e-5);
    for (let c = 0; c < x.cols; c++) out.data[k + c] = (x.data[k + c] - mean) * scale * weight[c] + bias[c];
  }
  return out;
}

// Spectral attention

/** e^{iω·(x − anchor)} for each point and each pair of channels, as a table of cosines and sines. */
function phases(model, x, anchor) {
  const { shape: [heads, pairs, dim], data: frequencies } = tensor(model, "frequencies.frequencies");
  const { shape: [, turning], data: change } = tensor(model, "frequencies.change");
  const out = table(x.length / dim, 2 * heads * pairs);
  for (let h = 0, k = 0; h < heads; h++) {
    for (let p = 0; p < pairs; p++, k++) {
      const learned = (d) => (p < pairs - turning ? 0 : change[(h * turning + p - pairs + turning) * dim + d]);
      const omega = anchor.map((_, d) => Math.fround(frequencies[k * dim + d] * Math.fround(1 + learned(d))));
      for (let n = 0; n < out.rows; n++) {
        let angle = 0;
        for (let d = 0; d < dim; d++) angle += omega[d] * (x[n * dim + d] - anchor[d]);
        out.data[n * out.cols + 2 * k] = Math.cos(angle);
        out.data[n * out.cols + 2 * k + 1] = Math.sin(angle);
      }
    }
  }
  return out;
}

/** Pairs of channels from number `first` on, as complex numbers, times the phases; for sign −1, their conjugates. */
function turn(h, phase, sign = 1, first = 0) {
  for (let r = 0; r < h.rows; r++) {
    for (let c = 0; c < phase.cols; c += 2) {
      const [k, p] = [r * h.cols + first + c, r * phase.cols + c];
      const re = h.data[k], im = h.data[k + 1], cos = phase.data[p], sin = sign * phase.data[p + 1];
      h.data[k] = re * cos - im * sin;
      h.data[k + 1] = re * sin + im * cos;
    }
  }
  return h;
}

/** softmax(scale · t) over each row, in place. */
function softmax(t, scale) {
  for (let k = 0; k < t.data.length; k += t.cols) {
    let largest = -Infinity, sum = 0;
    for (let c = 0; c < t.cols; c++) largest = Math.max(largest, t.data[k + c]);
    for (let c = 0; c < t.cols; c++) sum += t.data[k + c] = Math.exp(scale * (t.data[k + c] - largest));
    for (let c = 0; c < t.cols; c++) t.data[k + c] /= sum;
  }
  return t;
}

function attention(model, name, z, context, x, contextX) {
  const query = turn(linear(model, `${name}.to_query`, z), x);
  const keyValue = linear(model, `${name}.to_key_value`, context);
  turn(turn(keyValue, contextX), contextX, 1, z.cols);
  const value = transpose(keyValue, z.cols, z.cols);
  const [size, out] = [z.cols / model.heads, table(z.rows, z.cols)];
  const logits = table(z.rows, context.rows);
  for (let first = 0; first < z.cols; first += size) {
    product(strip(query, first), strip(keyValue, first), size, strip(logits));
    const weights = strip(softmax(logits, 1 / Math.sqrt(size)));
    product(weights, strip(value, first * context.rows, size), context.rows, strip(out, first));
  }
  return linear(model, `${name}.to_out`, turn(out, x, -1));
}

/** z + Attention(norm z, norm context), then z + MLP(norm z). */
function attend(model, name, z, context, x, contextX) {
  const [queries, keys] = [layerNorm(model, `${name}.norm`, z), layerNorm(model, `${name}.norm_context`, context)];
  const read = add(attention(model, `${name}.attention`, queries, keys, x, contextX), z);
  return add(mlp(model, `${name}.mlp`, layerNorm(model, `${name}.norm_mlp`, read)), read);
}

// Fixed inputs

/** h + strength · W t(x), in place: t is zero for points outside the domain, or at all where `fixed` is false. */
function inject(model, h, x, fixed) {
  const dim = model.domain.length;
  const inside = [];
  for (let n = 0; fixed && n < h.rows; n++) {
    if (model.domain.every(([low, high], d) => low <= x[n * dim + d] && x[n * dim + d] <= high)) inside.push(n);
  }
  const added = linear(model, "inject.mix", mlp(model, "fixed_inputs.mlp", placeFeatures(model, x, inside)));
  inside.forEach((n, i) => {
    for (let c = 0; c < h.cols; c++) h.data[n * h.cols + c] += model.strength * added.data[i * h.cols + c];
  });
  return h;
}

/** Positions scaled to the domain, with sines and cosines of each coordinate. */
function placeFeatures(model, x, points) {
  const dim = model.domain.length;
  const { shape: [, waves], data: frequencies } = model.tensors["fixed_inputs.frequencies"] ?? { shape: [dim, 0] };
  const out = table(points.length, dim * (1 + 2 * waves));
  points.forEach((n, i) => {
    model.domain.forEach(([low, high], d) => {
      const z = Math.fround((2 * x[n * dim + d] - (low + high)) / (high - low || 1));
      out.data[i * out.cols + d] = z;
      for (let w = 0; w < waves; w++) {
        const [angle, at] = [z * frequencies[d * waves + w], i * out.cols + dim + d * waves + w];
        out.data[at] = Math.sin(angle);
        out.data[at + dim * waves] = Math.cos(angle);
      }
    });
  });
  return out;
}

// Models: each has `encode`, which sees the context and the targets' extent, and `decode`

function contextMean(x, dim) {
  const mean = new Array(dim).fill(0);
  x.forEach((value, i) => { mean[i % dim] += value / (x.length / dim); });
  return mean;
}

/** The targets' tokens; the last ones of each number are kept, because a map asks for the same targets again. */
function targetTokens(model, x, fixed) {
  model.kept ??= new Map();
  const kept = model.kept.get(x.length);
  if (kept?.fixed === fixed && kept.x.every((value, i) => value === x[i])) return kept.tokens;
  const tokens = repeatRow(tensor(model, "target_token").data, x.length / model.domain.length);
  if (model.fixedAtTargets) inject(model, tokens, x, fixed);
  model.kept.set(x.length, { x, fixed, tokens });
  return tokens;
}

/** The head's outputs for targets that read the tokens of each layer in turn, some targets at a time. */
function readTargets(model, blocks, { anchor, place, tokens, fixed }, targets) {
  const [x, start] = [phases(model, targets, anchor), targetTokens(model, targets, fixed)];
  const out = table(start.rows, tensor(model, "head.4.bias").data.length);
  for (let r = 0; r < start.rows; r += CHUNK) {
    const here = rowsFrom(x, r);
    const read = (z, context, i) => attend(model, `${blocks}.${i}`, z, context, here, place);
    out.data.set(mlp(model, "head", tokens.reduce(read, rowsFrom(start, r))).data, r * out.cols);
  }
  return out;
}

function rowsFrom({ data, rows, cols }, first) {
  const end = Math.min(first + CHUNK, rows);
  return table(end - first, cols, data.subarray(first * cols, end * cols));
}

const TNP = {
  encode(model, x, y, targets, fixed) {
    const anchor = contextMean(x, model.domain.length);
    const place = phases(model, x, anchor);
    let z = inject(model, mlp(model, "embed", table(y.length, 1, Float32Array.from(y))), x, fixed);
    const tokens = [];
    for (let i = 0; `self_attention.${i}.norm.weight` in model.tensors; i++) {
      tokens.push((z = attend(model, `self_attention.${i}`, z, z, place, place)));
    }
    return { anchor, place, tokens, fixed };
  },

  decode: (model, state, targets) => readTargets(model, "cross_attention", state, targets),
};

const PTTNP = {
  encode(model, x, y, targets, fixed) {
    const anchor = contextMean(x, model.domain.length);
    const offsets = Float64Array.from(tensor(model, "pseudo_positions").data);
    const { shape: [count, dim], data } = tensor(model, "pseudo_values");
    let u = inject(model, table(count, dim, data.slice()), offsets.map((v, i) => v + anchor[i % anchor.length]), fixed);
    let z = mlp(model, "embed", table(y.length, 1, Float32Array.from(y)));
    const [here, place] = [phases(model, x, anchor), phases(model, offsets, anchor.map(() => 0))];
    const tokens = [];
    for (let i = 0; `read_context.${i}.norm.weight` in model.tensors; i++) {
      u = attend(model, `read_context.${i}`, u, z, place, here);
      if (`update.${i}.norm.weight` in model.tensors) z = attend(model, `update.${i}`, z, u, here, place);
      tokens.push(u);
    }
    const nothing = table(0, dim);
    return y.length ? { anchor, place, tokens, fixed } : { anchor, place, tokens: tokens.map(() => nothing), fixed };
  },

  decode: (model, state, targets) => readTargets(model, "read_pseudo", state, targets),
};

const ConvCNP = {
  encode(model, x, y, targets, fixed) {
    const grid = lattice(model, x, targets);
    const centres = Float64Array.from({ length: grid.size }, (_, i) => grid.origin + i * model.spacing);
    const h = inject(model, mlp(model, "embed", toGrid(model, grid, x, y)), centres, fixed);
    return { grid, h: unet(model, h) };
  },

  decode: (model, { grid, h }, targets) => mlp(model, "head", fromGrid(model, grid, h, targets)),
};

const FAMILIES = { tnp: TNP, pttnp: PTTNP, convcnp: ConvCNP };

/** The cells around all points, in whole blocks of the U-Net's stride counted from the anchor. */
function lattice({ spacing, margin, stride }, x, targets) {
  const anchor = latticeAnchor(x, spacing);
  let low = Infinity, high = -Infinity;
  for (const each of [x, targets]) {
    for (const at of each) {
      low = Math.min(low, (at - anchor) / spacing);
      high = Math.max(high, (at - anchor) / spacing);
    }
  }
  const first = -Math.ceil(Math.ceil(margin - low - 1e-3) / stride) * stride;
  const end = Math.ceil((Math.ceil(margin + high - 1e-3) + 1) / stride) * stride;
  return { origin: anchor + first * spacing, size: end - first };
}

/** The context's mean, moved onto the context's own lattice if it has one. */
function latticeAnchor(x, spacing) {
  const [mean] = contextMean(x, 1);
  let cosine = 0, sine = 0;
  for (const at of x) {
    const angle = (2 * Math.PI * (at - mean)) / spacing;
    cosine += Math.cos(angle) / x.length;
    sine += Math.sin(angle) / x.length;
  }
  if (cosine ** 2 + sine ** 2 <= 1 - 1e-5) return mean;
  const tie = Math.SQRT2 - 1.05;
  const turns = Math.atan2(sine, cosine) / (2 * Math.PI) + tie;
  return mean + (turns - Math.floor(turns) - tie) * spacing;
}

const gaussian = (distance, scale) => Math.exp(Math.max(scale * distance ** 2, -30));

/** The density of the context in each cell, and its smoothed outputs. */
function toGrid(model, grid, x, y) {
  const scale = -0.5 * Math.exp(-2 * tensor(model, "to_grid.log_lengthscale").data[0]);
  const out = table(grid.size, 2);
  for (let cell = 0; cell < grid.size; cell++) {
    let density = 0, sum = 0;
    for (let n = 0; n < x.length; n++) {
      const weight = gaussian(cell - (x[n] - grid.origin) / model.spacing, scale);
      density += weight;
      sum += weight * y[n];
    }
    out.data.set([density, sum / (density + 1e-6)], 2 * cell);
  }
  return out;
}

/** Σ_u h(u) ψ(x − u), where each lengthscale of ψ has its share of the channels. */
function fromGrid(model, grid, h, targets) {
  const { data: lengths } = tensor(model, "from_grid.log_lengthscales");
  const [out, channels] = [table(targets.length, h.cols), transpose(h)];
  const weights = table(targets.length, grid.size);
  lengths.forEach((length, k) => {
    const [scale, start] = [-0.5 * Math.exp(-2 * length), Math.floor((h.cols * k) / lengths.length)];
    const count = Math.floor((h.cols * (k + 1)) / lengths.length) - start;
    const volume = Math.sqrt(-scale / Math.PI);
    for (let n = 0, i = 0; n < targets.length; n++) {
      const at = (targets[n] - grid.origin) / model.spacing;
      for (let cell = 0; cell < grid.size; cell++, i++) weights.data[i] = volume * gaussian(cell - at, scale);
    }
    product(strip(weights), strip(channels, start * grid.size, count), grid.size, strip(out, start));
  });
  return out;
}

function unet(model, input) {
  let h = relu(convolve(model, "network.first", input));
  const skips = [];
  for (let i = 0; `network.down.${i}.weight` in model.tensors; i++) {
    skips.push(h);
    h = relu(convolve(model, `network.down.${i}`, halve(h)));
  }
  skips.reverse().forEach((skip, i) => {
    h = relu(convolve(model, `network.up.${i}`, beside(double(h), skip)));
  });
  return h;
}

/** A convolution with zeros around the array: the cells that a kernel covers lie side by side in memory. */
function convolve(model, name, h) {
  const { shape: [channels, , kernel] } = tensor(model, `${name}.weight`);
  const padded = table(h.rows + kernel - 1, h.cols);
  padded.data.set(h.data, (kernel >> 1) * h.cols);
  const out = table(h.rows, channels);
  const filters = table(channels, kernel * h.cols, filtersByCell(tensor(model, `${name}.weight`)));
  product(strip(padded, 0, h.rows), strip(filters), filters.cols, strip(out));
  return addToRows(out, tensor(model, `${name}.bias`).data);
}

/** A convolution's weights in the order (out, cell, in), made once. */
function filtersByCell(weight) {
  const { shape: [outs, ins, kernel], data } = weight;
  weight.byCell ??= Float32Array.from(data, (_, k) => {
    const [o, v, i] = [Math.floor(k / (kernel * ins)), Math.floor(k / ins) % kernel, k % ins];
    return data[(o * ins + i) * kernel + v];
  });
  return weight.byCell;
}

function halve(h) {
  const out = table(h.rows / 2, h.cols);
  for (let r = 0, k = 0; r < out.rows; r++) {
    const [first, second] = [2 * r * h.cols, (2 * r + 1) * h.cols];
    for (let c = 0; c < h.cols; c++, k++) out.data[k] = (h.data[first + c] + h.data[second + c]) / 2;
  }
  return out;
}

/** Linear interpolation to cells of half the size, with zeros around the array. */
function double(h) {
  const out = table(2 * h.rows, h.cols);
  const at = (row, c) => (row < 0 || row >= h.rows ? 0 : h.data[row * h.cols + c]);
  for (let r = 0, k = 0; r < out.rows; r++) {
    const [near, far] = [r >> 1, (r >> 1) + (r % 2 ? 1 : -1)];
    for (let c = 0; c < h.cols; c++, k++) out.data[k] = 0.75 * at(near, c) + 0.25 * at(far, c);
  }
  return out;
}

function beside(a, b) {
  const out = table(a.rows, a.cols + b.cols);
  for (let r = 0; r < a.rows; r++) {
    out.data.set(a.data.subarray(r * a.cols, (r + 1) * a.cols), r * out.cols);
    out.data.set(b.data.subarray(r * b.cols, (r + 1) * b.cols), r * out.cols + a.cols);
  }
  return out;
}

// Predictions

/** Mean and standard deviation at the targets `xt`, or at `some` of them; `fixed` false leaves the equivariant part. */
function predict(model, { x, y, xt, some = xt }, fixed) {
  const shift = model.values === "centred" ? contextMean(y, 1)[0] : 0;
  const { encode, decode } = FAMILIES[model.family];
  const state = encode(model, x, y.map((value) => value - shift), xt, fixed);
  const raw = decode(model, state, some).data;
  const count = raw.length / 2;
  return {
    mean: Float64Array.from({ length: count }, (_, n) => shift + raw[2 * n]),
    sd: Float64Array.from({ length: count }, (_, n) => model.minScale + softplus(raw[2 * n + 1])),
  };
}

const softplus = (v) => (v > 20 ? v : Math.log1p(Math.exp(v)));

/** The models of the page: `facts` of each, and the weights of all as deflated planes of bytes in base 64. */
async function readModels(facts, weights) {
  const packed = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const numbers = planes.length / 4;
  const bytes = new Uint8Array(planes.length);
  for (let i = 0; i < numbers; i++) for (let b = 0; b < 4; b++) bytes[4 * i + b] = planes[b * numbers + i];
  return withTensors(facts, new Float32Array(bytes.buffer));
}

function withTensors(facts, values) {
  let start = 0;
  for (const model of Object.values(facts)) {
    for (const [name, shape] of Object.entries(model.tensors)) {
      const end = start + shape.reduce((a, b) => a * b, 1);
      model.tensors[name] = { shape, data: values.subarray(start, end) };
      start = end;
    }
  }
  return facts;
}
