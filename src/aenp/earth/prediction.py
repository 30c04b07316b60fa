"""Predictions: what a process says of places, given a context, in the user's units and as a data set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.distributions import Distribution

from aenp.data.kinds import counted_from, levels
from aenp.earth.contexts import Context, at_places, content, places_of, within
from aenp.earth.frame import Frame, Variable
from aenp.earth.nodes import Nodes
from aenp.earth.observations import columns_of
from aenp.earth.places import Places
from aenp.earth.reference import Misses
from aenp.earth.tiles import Tiles
from aenp.inference import median
from aenp.likelihoods import NonNegative, Unit, blurred, in_unit, widened
from aenp.process import NeuralProcess
from aenp.task import Task

CHUNK = 4096
"Number of targets that are decoded at a time."
DESCRIPTIONS = {
    "mean": "predicted {}",
    "std": "standard deviation of the predicted {}",
    "equivariant_mean": "{} predicted by the equivariant part of the model",
    "local_effect": "effect of the place on the predicted {}, mean minus equivariant_mean",
    "probability_of_zero": "probability that {} is zero",
    "quantiles": "quantiles of the predicted {}",
    "samples": "coherent samples of the predicted {}",
}
Outputs: TypeAlias = dict[str, pd.Index | None]
"Which of `DESCRIPTIONS` are predicted, and the labels along the further dimension of those that have one."


class Encoded(NamedTuple):
    """A context as the model represents it: with its fixed inputs, without, and with the values of samples added."""

    state: Any
    equivariant: Any
    unit: Unit | None
    samples: Any
    sample_unit: Unit | None
    level: Float[Tensor, " variables"]


@dataclass(frozen=True)
class Predictor:
    """Predicts places of a target from contexts.

    Args:
        process: the neural process, in evaluation mode.
        frame: its coordinates and units.
        spread: the factor of its standard deviations.
        centred: whether each of several variables counts from the mean of its values in a tile.
        outputs: what to predict.
        misses: of samples, errors of what values count from; None if that is known.
        encoded: the context that was encoded last.
    """

    process: NeuralProcess
    frame: Frame
    spread: float
    centred: bool
    outputs: Outputs = field(default_factory=dict)
    misses: Misses | None = None
    encoded: dict[tuple[int, ...], Encoded] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of arrays that are predicted."""
        return len(self.frame.variables) * sum(1 if each is None else len(each) for each in self.outputs.values())

    def context(self, observed: pd.DataFrame, corners: Float[ndarray, "2 dim_x"], nodes: Nodes | None) -> Context:
        """The observations, in columns of the variables' names or one called `value`, of which any may be missing."""
        names = columns_of(self.frame)
        measured = (observed[name].notna() for name in names)
        tables = [observed if each.all() else observed[each] for each in measured]
        x = np.concatenate([self.frame.x({name: each[name].to_numpy() for name in self.frame.axes}) for each in tables])
        parts = [
            np.column_stack([self.frame.y(each[name].to_numpy(float), each, number), self.frame.c(each, number)])
            for number, (name, each) in enumerate(zip(names, tables, strict=True))
        ]
        both = np.concatenate(parts)
        if nodes is not None:
            corners, (x, both) = nodes.nearest(corners), nodes.averaged(x, both)
        xc, yc, cc, xt = (torch.from_numpy(each).unsqueeze(0) for each in (x, both[:, :1], both[:, 1:], corners))
        tiles, dtype = Tiles.over(x, self.frame.windows), self.process.dtype
        if not cc.shape[-1]:
            return Context(Task(xc, yc.to(dtype), xt), tiles)
        # Of the targets a model's `encode` sees the extent alone.
        nothing = torch.zeros(1, len(corners), cc.shape[-1], dtype=dtype)
        known = {"context_covariates": cc.to(dtype), "target_covariates": nothing}
        return Context(Task(xc, yc.to(dtype), xt, **known), tiles)

    def __call__(
        self,
        *places: ndarray,
        names: Sequence[str],
        times: ndarray | None,
        contexts: Sequence[Context | None],
        local: bool,
        advance: Callable[[float], None] | None,
    ) -> tuple[ndarray, ...]:
        """Each of the outputs at the places, whose coordinates have these names; with fixed inputs if `local`."""
        coordinates = {name: values.ravel() for name, values in zip(names, places, strict=True)}
        x = self.frame.x(coordinates)
        number = np.zeros(len(x), int) if times is None else np.searchsorted(times, coordinates["time"])
        out = np.full((self.count, len(x)), np.nan)
        # Neighbours are decoded together, because a chunk of them reads only a small part of a wide grid.
        order = np.lexsort((x[:, 1], np.floor(x[:, 0]), number))
        order = order[np.isfinite(np.concatenate([x, self.frame.c(coordinates)], axis=1)[order]).all(axis=1)]
        fixed_inputs = self.process.fixed_inputs
        with torch.no_grad(), nullcontext() if fixed_inputs is None else fixed_inputs.switched(local):
            for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
                which = int(number[index[0]]) if len(index) else 0
                context = contexts[which]
                if context is not None and len(index):
                    self._blend(out, index, which, context, x, coordinates, advance)
        return tuple(values.reshape(places[0].shape) for values in out)

    def _blend(
        self,
        out: Float[ndarray, "n points"],
        index: ndarray,
        which: int,
        context: Context,
        x: Float[ndarray, "points dim_x"],
        coordinates: Mapping[str, ndarray],
        advance: Callable[[float], None] | None,
    ) -> None:
        """Writes what the tiles of one time predict at the places of these numbers, weighted."""
        samples = self.outputs.get("samples")
        size = CHUNK if samples is None else max(1, CHUNK // len(samples))
        out[:, index] = 0
        for tile, rows, weights in context.tiles.shares(x[index]):
            for part in np.array_split(np.arange(len(rows)), -(-len(rows) // size)):
                some = index[rows[part]]
                there = {name: values[some] for name, values in coordinates.items()}
                values = self._values(self._remembered(which, tile, context), x[some], there)
                out[:, some] += weights[part] * values
                if advance is not None:
                    advance(float(weights[part].sum()))

    def _remembered(self, which: int, tile: tuple[int, ...], context: Context) -> Encoded:
        """The encoded tile; only one is kept, and a thread that still needs another holds it."""
        found = self.encoded.get((which, *tile))
        if found is None:
            found = self.encode(context, tile)
            self.encoded.clear()
            self.encoded[which, *tile] = found
        return found

    def encode(self, context: Context, tile: tuple[int, ...]) -> Encoded:
        """What the model makes of a tile."""
        task = self._tile(context.task, context.tiles, tile)
        level = self.level(task)
        seen, unit = self.process.normalise(self.counted(task, level))
        samples = sample_unit = None
        if context.samples is not None:
            grown = self.counted(self._tile(context.samples, context.tiles, tile), level)
            sampled, sample_unit = self.process.normalise(grown)
            samples = self.process.encode(sampled)
        state = equivariant = self.process.encode(seen)
        if self.process.fixed_inputs is not None and self.process.fixed_inputs.strength:
            with self.process.equivariant():
                equivariant = self.process.encode(seen)
        return Encoded(state, equivariant, unit, samples, sample_unit, level[0])

    def _tile(self, task: Task, tiles: Tiles, tile: tuple[int, ...]) -> Task:
        """What a tile sees of a task, and the corners of its own part of the target."""
        corners = torch.from_numpy(tiles.corners(tile, task.xt[0].numpy())).expand(len(task), -1, -1)
        return replace(within(task, tiles.seen(tile, places_of(task))), xt=corners)

    def level(self, task: Task) -> Float[Tensor, "batch variables"]:
        """What the values of each variable count from."""
        if not self.centred:
            return task.yc.new_zeros(1, len(self.frame.variables))
        return levels(task, self.frame.kinds)

    def counted(self, task: Task, level: Float[Tensor, "batch variables"]) -> Task:
        return counted_from(task, level) if self.centred else task

    def distributions(
        self, context: Context, places: pd.DataFrame, number: int = 0
    ) -> Iterator[tuple[ndarray, Distribution]]:
        """Distributions of a variable in the model's unit: numbers of places, and what their nearest tile predicts."""
        x, known = (
            self.frame.x({name: places[name].to_numpy() for name in self.frame.axes}),
            self.frame.c(places, number),
        )
        for tile, rows in context.tiles.nearest(x):
            encoded = self._remembered(0, tile, context)
            at, doubt = at_places(x[rows], known[rows]), self._doubt(places.iloc[rows])
            prediction = self._distribution(encoded.state, encoded.unit, at, doubt)
            yield rows, in_unit(prediction, encoded.level[number], torch.ones(())) if self.centred else prediction

    def means(self, contexts: Sequence[Context], places: pd.DataFrame) -> Float[ndarray, "contexts places"]:
        """The means of the one variable in the model's unit, given each of the contexts, as blended.

        Contexts that differ elsewhere show a tile the same, which is then encoded once; all others in one pass.
        """
        x, known = self.frame.x({name: places[name].to_numpy() for name in self.frame.axes}), self.frame.c(places)
        parts: dict[bytes, list[tuple[int, Task, Float[ndarray, " rows"]]]] = {}
        for number, context in enumerate(contexts):
            for tile, rows, weights in context.tiles.shares(x):
                seen = self._tile(context.task, context.tiles, tile)
                parts.setdefault(rows.tobytes(), []).append((number, seen, weights))
        out = np.zeros((len(contexts), len(x)))
        for key, alike in parts.items():
            rows, different = np.frombuffer(key, int), {content(task): task for _, task, _ in alike}
            means = self._means(list(different.values()), x[rows], known[rows])
            found = dict(zip(different, means, strict=True))
            for number, task, weights in alike:
                out[number, rows] += weights * found[content(task)]
        return out

    def _means(self, tasks: Sequence[Task], x: ndarray, known: ndarray) -> Float[ndarray, "tasks places"]:
        """The means at places given each of the tasks, in one pass."""
        task = Task.stack(tasks)
        level = self.level(task)
        seen, unit = self.process.normalise(self.counted(task, level))
        with torch.no_grad():
            state = self.process.encode(seen)
            chunks = zip(*(each.split(CHUNK, dim=1) for each in at_places(x, known, len(tasks))), strict=True)
            every = [self.process.likelihood(self.process.decode(state, *some), unit) for some in chunks]
        return (torch.cat([each.mean for each in every], dim=1)[..., 0] + level[:, :1]).numpy()

    def _distribution(
        self, state: Any, unit: Unit | None, at: tuple[Tensor, ...], doubt: Float[Tensor, "1 places 1"] | None
    ) -> Distribution:
        prediction = self.process.likelihood(self.process.decode(state, *at), unit)
        return widened(prediction if doubt is None else blurred(prediction, doubt), self.spread)

    def _doubt(self, coordinates: Mapping[str, ndarray] | pd.DataFrame) -> Float[Tensor, "1 places 1"] | None:
        """The error of what values count from at these places."""
        doubt = self.frame.doubt(coordinates)
        return None if doubt is None else torch.from_numpy(doubt).to(self.process.dtype).view(1, -1, 1)

    def _values(
        self, encoded: Encoded, x: Float[ndarray, "points dim_x"], coordinates: Mapping[str, ndarray]
    ) -> Float[ndarray, "n points"]:
        """Each of the outputs at these places, in the user's units: of each variable, and for each label, or once."""
        every = []
        for number in range(len(self.frame.variables)):
            shift, scale = (torch.as_tensor(each).view(-1, 1) for each in self.frame.units(coordinates, number))
            shift = shift + scale * encoded.level[number]
            at, doubt = at_places(x, self.frame.c(coordinates, number)), self._doubt(coordinates)
            values = self._of_variable(encoded, at, doubt)
            if self.misses is not None:
                misses = torch.from_numpy(self.misses(coordinates)).unsqueeze(-1)
                values["samples"] = values["samples"] + self.spread * misses
            every += [_in_units(key, values[key], shift, scale) for key in self.outputs]
        return torch.cat(every)[..., 0].numpy()

    def _of_variable(
        self, encoded: Encoded, at: tuple[Tensor, ...], doubt: Float[Tensor, "1 places 1"] | None
    ) -> dict[str, Float[Tensor, "labels points 1"]]:
        """The outputs of one variable, in the model's unit."""
        decode, likelihood, outputs = self.process.decode, self.process.likelihood, self.outputs
        prediction = self._distribution(encoded.state, encoded.unit, at, doubt)
        mean = equivariant = prediction.mean
        if encoded.equivariant is not encoded.state:
            with self.process.equivariant():
                equivariant = self._distribution(encoded.equivariant, encoded.unit, at, None).mean
        values = {
            "mean": mean,
            "std": prediction.stddev,
            "equivariant_mean": equivariant,
            "local_effect": mean - equivariant,
        }
        if "probability_of_zero" in outputs:
            values["probability_of_zero"] = prediction.cdf(torch.zeros_like(mean))
        if (labels := outputs.get("quantiles")) is not None:
            values["quantiles"] = prediction.icdf(mean.new_tensor(labels.to_numpy()).view(-1, 1, 1))
        if (labels := outputs.get("samples")) is not None:
            raw = decode(encoded.samples, *(each.expand(len(labels), -1, -1) for each in at))
            drawn = median(likelihood(raw, encoded.sample_unit))
            values["samples"] = drawn if self.spread == 1 else mean + self.spread * (drawn - mean)
        return values

    def check_names(self, places: Places, where: str) -> None:
        """Raises an error if the target has a name of its own that the result needs."""
        own = {*places.labels}.union(*((*each.dims, *each.coords) for each in places.coordinates.values()))
        ours = {self._name(*each) for each in product(self.frame.variables, self.outputs)} | {"in_domain"}
        ours |= {labels.name for labels in self.outputs.values() if labels is not None}
        if both := sorted(map(str, own & ours)):
            raise ValueError(f"{where} has {', '.join(both)}, which is a name in the prediction too: rename it")

    def _name(self, variable: Variable, key: str) -> str:
        return f"{variable.name}_{key}" if self.frame.kinds else key

    def dataset(
        self, arrays: Sequence[xr.Variable], inside: xr.Variable, known: Mapping[Any, xr.DataArray]
    ) -> xr.Dataset:
        """The arrays, in the order of `_values`, with CF metadata, `in_domain` and what is known of the places."""
        remaining, found = iter(arrays), {}
        own = {name: values.variable for name, values in known.items()}
        for variable in self.frame.variables:
            for key, labels in self.outputs.items():
                several = [next(remaining) for _ in range(1 if labels is None else len(labels))]
                values = several[0] if labels is None else xr.Variable.concat(several, labels.name)
                own |= {} if labels is None else {labels.name: xr.Variable(labels.name, labels)}
                name = self._name(variable, key)
                description = DESCRIPTIONS[key].format(variable.long_name or variable.name)
                units = "1" if key == "probability_of_zero" else variable.units
                found[name] = values
                values.attrs = {"long_name": description, "units": units}
        return xr.Dataset(found | {"in_domain": inside}, own)


def outputs_of(process: NeuralProcess, quantiles: Sequence[float], samples: int, parts: bool = True) -> Outputs:
    """What is predicted, with the equivariant part and the rest if `parts`; a model without symmetry has neither."""
    given = np.asarray(quantiles)
    if given.ndim != 1 or not all((given > 0) & (given < 1)) or len(np.unique(given)) < len(given):
        raise ValueError(f"quantiles must be a list of different probabilities between 0 and 1; got {quantiles}")
    if samples < 0:
        raise ValueError(f"samples must not be negative; got {samples}")
    outputs: Outputs = {"mean": None, "std": None}
    if parts and process.symmetry != "none":
        outputs |= {"equivariant_mean": None, "local_effect": None}
    if isinstance(process.likelihood, NonNegative):
        outputs["probability_of_zero"] = None
    if len(quantiles):
        outputs["quantiles"] = pd.Index(quantiles, name="quantile", dtype=float)
    if samples:
        outputs["samples"] = pd.RangeIndex(samples, name="sample")
    return outputs


def _in_units(key: str, values: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Values of an output, which are in the model's unit, in the user's."""
    if key == "probability_of_zero":
        return values.double()
    return scale * values if key in ("std", "local_effect") else scale * values + shift
