"""Samples: values drawn one after another at places spread over a target, given which a field is predicted."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.spatial import KDTree
from torch import Tensor

from aenp.earth.contexts import Context, at_places, joined, places_of, within
from aenp.earth.frame import Frame
from aenp.earth.nodes import Nodes
from aenp.earth.places import Places
from aenp.earth.prediction import Predictor
from aenp.inference import ar_context, spread
from aenp.process import NeuralProcess
from aenp.task import Task

CHAIN = 128
"Number of places in a tile where a sample is drawn one after another; elsewhere it is what the model then expects."
CANDIDATES = 10_000
"The largest number of places among which those are chosen."


def sampled(
    predictor: Predictor,
    contexts: Sequence[Context | None],
    times: ndarray | None,
    places: Places,
    nodes: Nodes | None,
    samples: int,
    seed: int,
) -> list[Context | None]:
    """The contexts with values drawn for each sample, now, so that all chunks of a lazy target share them."""
    grown: list[Context | None] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for number, context in enumerate(contexts):
            at = places if times is None else places.at_time(times[number])
            grown.append(None if context is None else _with_samples(predictor, context, at, nodes, samples))
    return grown


def _with_samples(predictor: Predictor, context: Context, places: Places, nodes: Nodes | None, samples: int) -> Context:
    """The context with values drawn for each sample, in one tile after another given those drawn before."""
    x, known = _candidates(predictor.frame, places, nodes)
    precise = context.task.yc.to(torch.promote_types(context.task.yc.dtype, torch.float32))
    grown = Task.stack([replace(context.task, yc=precise)] * samples)
    for tile, rows in context.tiles.nearest(x):
        grown = _drawn_in(predictor, tile, context, grown, at_places(x[rows], known[rows], samples))
    return replace(context, samples=grown)


def _drawn_in(
    predictor: Predictor, tile: tuple[int, ...], context: Context, grown: Task, at: tuple[Tensor, ...]
) -> Task:
    """The task with values drawn at places spread among these."""
    tiles = context.tiles
    free = _free(predictor.process, context.task, at[0])
    level = predictor.level(within(context.task, tiles.seen(tile, places_of(context.task))))
    seen = within(grown, tiles.seen(tile, places_of(grown)))
    task = predictor.counted(seen.with_targets(at[0], None, free, *at[1:]), level)
    most = CHAIN * len(predictor.frame.variables)
    order = spread(task[:1], min(most, at[0].shape[1])).expand(len(grown), -1)
    drawn = predictor.counted(ar_context(predictor.process, task, 1, order), -level)
    added = within(drawn, np.arange(drawn.xc.shape[1]) >= seen.xc.shape[1])
    return joined(grown, added)


def _free(
    process: NeuralProcess, task: Task, x: Float[Tensor, "samples places dim_x"]
) -> Bool[Tensor, "samples places"] | None:
    """Where a value can be drawn: on a grid no node may have two."""
    if not getattr(process, "on_grid", False):
        return None
    seen = task.xc[0] if task.context_mask is None else task.xc[task.context_mask]
    apart = KDTree(seen.numpy()).query(x[0].numpy())[0] > min(process.spacing) / 2  # type: ignore[arg-type]
    return torch.from_numpy(apart).expand(len(x), -1)


def _candidates(frame: Frame, places: Places, nodes: Nodes | None) -> tuple[ndarray, ndarray]:
    """Some of the target's places, evenly along each dimension, in the model's unit, and covariates by variable."""
    names = [*frame.axes, *(each.name for each in frame.covariates)]
    every = xr.broadcast(*(places.coordinates[name] for name in names))
    step = math.ceil((every[0].size / CANDIDATES) ** (1 / max(every[0].ndim, 1)))
    some = {d: slice(min(step, size) // 2, None, step) for d, size in every[0].sizes.items()}
    chosen = {name: each.isel(some).values.ravel() for name, each in zip(names, every, strict=True)}
    x = frame.x(chosen)
    there = np.isfinite(x).all(axis=1)
    if nodes is not None:
        x = nodes.nearest(x)
        first = np.unique(np.where(there[:, None], x, np.inf), axis=0, return_index=True)[1]
        there &= np.isin(np.arange(len(x)), first)
    kinds = [frame.c(chosen, number)[there] for number in range(len(frame.variables))]
    return np.tile(x[there], (len(kinds), 1)), np.concatenate(kinds)
