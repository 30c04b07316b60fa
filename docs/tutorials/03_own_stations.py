"""
Your own stations
=================

A table of stations is enough to train a model: time, latitude, longitude, a value, and whatever else is known of each
row, such as the elevation. We fit one, ask what its *local effects* are worth at stations that it has never seen, set
it beside kriging, draw a map, and let it choose places for new stations.

Replace ``table`` by ``pd.read_csv("stations.csv")`` to use your own.
"""

import os

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt

import aenp

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 600))

# %%
# The data
# --------
# Sixty made-up stations around a mountain range report daily temperatures: large waves of weather, 6.5 K less for each
# kilometre of height, noise, and a cold lake in the north-west, which nothing in the table tells of.

rng = np.random.default_rng(0)
latitude, longitude = np.arange(44.0, 48.01, 0.1), np.arange(5.0, 11.01, 0.1)
north, east = np.meshgrid(latitude, longitude, indexing="ij")
height = 2500 * np.exp(-((north - 45.5 - 0.2 * np.sin(3 * east)) ** 2)) * (0.7 + 0.3 * np.sin(4 * east + north))
coords = {
    "latitude": ("latitude", latitude, {"units": "degrees_north"}),
    "longitude": ("longitude", longitude, {"units": "degrees_east"}),
}
topography = xr.DataArray(height, coords, tuple(coords), "elevation", {"units": "m", "long_name": "elevation"})

stations = pd.DataFrame({"latitude": rng.uniform(44, 48, 60), "longitude": rng.uniform(5, 11, 60)})
stations["elevation"] = topography.interp(stations.to_xarray()[["latitude", "longitude"]]).values
table = pd.DataFrame({"time": pd.date_range("2021-01-01", periods=50)}).merge(stations, how="cross")
waves = rng.normal(0, 0.5, (2, 8, 50)).repeat(60, axis=2), rng.uniform(0, 2 * np.pi, (8, 50)).repeat(60, axis=1)
weather = np.cos(waves[0][0] * table["latitude"].array + waves[0][1] * table["longitude"].array + waves[1]).sum(axis=0)
lake = np.exp(-((table["latitude"] - 47) ** 2 + (table["longitude"] - 6.5) ** 2))
table["t2m [K]"] = 285 + 1.5 * weather - 0.0065 * table["elevation"] - 4 * lake + rng.normal(0, 0.3, len(table))
print(table.head(3))

# %%
# Fit
# ---
# ``covariates`` names the columns that are known wherever the model will be used; units may stand in brackets, as in
# ``t2m [K]``. Ten stations and the last ten days are kept for later. Of the rest, ``fit`` itself leaves some stations
# out, to find out whether local effects hold at new places: it weakens those that do not.

unseen = stations.sample(10, random_state=1)
known = table.merge(unseen, "left", indicator="kept")["kept"].eq("left_only").array
training = table[known & (table["time"] < "2021-02-10")]
model = aenp.fit(training, "tnp", covariates=["elevation"], steps=STEPS)
gain, error = model.local_gain
print(f"local effects add {gain:.3f} ± {error:.3f} to the log-likelihood of an observation at a new station")

# %%
# Beside kriging
# --------------
# The unseen stations on the last days, predicted from all others. Kriging with elevation assumes just what we made up,
# smooth weather and a constant lapse rate, so it is hard to beat here.

print(model.validate(table, stations=unseen, days=("2021-02-10", "2021-02-19"), tasks=5))

# %%
# A map, and where to measure next
# --------------------------------
# A map needs the elevation everywhere, so the topography is given as a field. ``suggest`` looks for the places where
# further stations would most reduce the variance.

today = table[table["time"] == "2021-02-19"]
prediction = model.predict(today, topography, covariates=[topography])
places = model.suggest(today, topography[::5, ::10], number=3, covariates=[topography])
print(places.round(1))

figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, sharey=True, layout="constrained")
topography.plot(ax=axes[0, 0], cmap="YlOrBr")
for axis, name in zip(axes.flat[1:], ("mean", "std", "local_effect"), strict=True):
    prediction[name].squeeze().plot(ax=axis)
for axis, title in zip(axes.flat, ("elevation", "prediction", "standard deviation", "local effect"), strict=True):
    axis.scatter(today["longitude"], today["latitude"], s=10, color="black")
    axis.set_title(title)
    axis.label_outer()
axes[1, 0].scatter(places["longitude"], places["latitude"], marker="*", s=120, color="white", edgecolors="black")
