"""
Precipitation
=============

Rain is never negative and often exactly zero, so a Normal distribution does not describe it. With
``likelihood="precipitation"`` a model predicts a probability of no rain and, above zero, amounts with a long tail. We
fit one to made-up daily rain over a ridge, and look at probabilities, quantiles, samples and scores.

Your own rain is ``xr.open_dataset("rain.nc")["tp"]``, with time, latitude and longitude, or a table of gauges.
"""

import os

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt

import aenp

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 250))

# %%
# The data
# --------
# Where the weather, a sum of random waves, is moist enough, it rains; over the ridge at 8° E it rains sooner and more.

rng, days = np.random.default_rng(0), 80
latitude, longitude = np.arange(44.0, 48.0, 0.25), np.arange(5.0, 11.0, 0.25)
north, east = rng.normal(0, 1.2, (2, 12, days, 1, 1))  # wave numbers, in radians per degree
phase = rng.uniform(0, 2 * np.pi, (12, days, 1, 1))
moisture = np.cos(north * latitude[:, None] + east * longitude + phase).sum(axis=0) / 6**0.5
amount = 8 * np.maximum(moisture - 0.5 + np.exp(-((longitude - 8) ** 2)), 0) ** 1.5
coords = {
    "time": pd.date_range("2021-06-01", periods=days),
    "latitude": ("latitude", latitude, {"units": "degrees_north"}),
    "longitude": ("longitude", longitude, {"units": "degrees_east"}),
}
rain = xr.DataArray(amount, coords, tuple(coords), "rain", {"units": "mm", "long_name": "daily precipitation"})
print(f"it rains in {100 * float((rain > 0).mean()):.0f} % of all cells and days, at most {float(rain.max()):.0f} mm")

# %%
# Fit and predict
# ---------------
# Forty gauges on each of the last ten days: a field with NaN where there is no gauge.

past, new = rain[:-10], rain[-10:]
model = aenp.fit(past, likelihood="precipitation", steps=STEPS)
gauges = xr.zeros_like(new[0].drop_vars("time"), bool)
gauges.values.flat[rng.choice(gauges.size, 40, replace=False)] = True
levels = [(number + 0.5) / 25 for number in range(25)]
prediction = model.predict(new.where(gauges), new, quantiles=levels)

# %%
# One day
# -------
# Beside the probability of rain and a high quantile, three *samples*: fields that could have been, each with its own
# dry and wet places. Their mean would be none of these; it has drizzle everywhere.

places = gauges.to_series()[lambda has_gauge: has_gauge].reset_index()
samples = model.predict(new[:1].where(gauges), new[:1], samples=3)["samples"]
chance = (1 - prediction["probability_of_zero"]).assign_attrs(long_name="probability of rain", units="1")
figure, axes = plt.subplots(2, 3, figsize=(13, 6), sharex=True, sharey=True, layout="constrained")
millimetres = {"vmin": 0, "vmax": float(new[0].max()), "cmap": "Blues"}
new[0].plot(ax=axes[0, 0], **millimetres)
chance[0].plot(ax=axes[0, 1], vmin=0, vmax=1, cmap="Greens")
prediction["quantiles"].isel(time=0).sel(quantile=0.9, method="nearest").plot(ax=axes[0, 2], **millimetres)
for number, axis in enumerate(axes[1]):
    samples.isel(sample=number, time=0).plot(ax=axis, **millimetres)
titles = ("truth", "probability of rain", "nine days in ten have less", "sample 1", "sample 2", "sample 3")
for axis, title in zip(axes.flat, titles, strict=True):
    axis.scatter(places["longitude"], places["latitude"], s=6, color="black")
    axis.set_title(title)
    axis.label_outer()

# %%
# Scores
# ------
# The continuous ranked probability score is twice the mean pinball loss over all quantiles, in mm; smaller is better.
# The climatology has the quantiles of each cell over the past days.


def crps(quantiles: xr.DataArray) -> float:
    distance = quantiles - new
    loss = ((distance > 0) - quantiles["quantile"]) * distance
    return float(2 * loss.where(~gauges).mean())


print(f"CRPS of the model:       {crps(prediction['quantiles']):.3f} mm")
print(f"CRPS of the climatology: {crps(past.quantile(levels, 'time')):.3f} mm")

# %%
# Are the probabilities right? Of all cells with a probability of about 30 %, it should rain in 30 %.

table = pd.DataFrame({"predicted": chance.values.ravel(), "observed": (new > 0).values.ravel()})
table = table[~np.tile(gauges.values.ravel(), len(new))]
print(table.groupby(pd.cut(table["predicted"], np.linspace(0, 1, 6)), observed=True).mean().round(2))
