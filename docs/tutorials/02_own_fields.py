"""
Your own fields
===============

From a gridded field to a map with error bars: train on past days, predict a new day from thirty stations, ask how good
that is beside kriging, and where three more stations should be.

With a file of yours as argument, ``python 02_own_fields.py t2m.nc``, the script runs on that; without, it makes up some
weather.
"""

import os
import sys

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt

import aenp

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 500))  # `minutes=20` suits real data

# %%
# The data
# --------
# Anything that xarray opens, with time, latitude and longitude, will do. Each day of the made-up weather is a sum of
# random waves, of the same kind everywhere. Over it stands a mountain, where it is always colder.


def made_up_field(days: int = 80) -> xr.DataArray:
    latitude, longitude = np.arange(44.0, 52.0, 0.5), np.arange(2.0, 12.0, 0.5)
    rng = np.random.default_rng(0)
    north, east = rng.normal(0, 0.7, (2, 12, days, 1, 1))  # wave numbers, in radians per degree
    phase = rng.uniform(0, 2 * np.pi, (12, days, 1, 1))
    weather = np.cos(north * latitude[:, None] + east * longitude + phase).sum(axis=0)
    mountain = np.exp(-((latitude[:, None] - 47) ** 2) / 2 - (longitude - 8) ** 2 / 4)
    coords = {
        "time": pd.date_range("2020-06-01", periods=days),
        "latitude": ("latitude", latitude, {"units": "degrees_north"}),
        "longitude": ("longitude", longitude, {"units": "degrees_east"}),
    }
    attrs = {"units": "K", "long_name": "2 metre temperature"}
    return xr.DataArray(288 + weather - 8 * mountain, coords, tuple(coords), "t2m", attrs)


field = made_up_field() if len(sys.argv) < 2 else xr.open_dataarray(sys.argv[1])
past, new = field[:-10], field[-10:]

# %%
# Train
# -----
# In each step the model sees some points of random patches, and predicts others. ``symmetry="approx"`` lets it learn
# what is special about places, beside what holds everywhere.

model = aenp.fit(past, family="convcnp", symmetry="approx", steps=STEPS)

# %%
# Predict
# -------
# Thirty stations report on a day that the model has not seen. A CSV file with columns latitude, longitude and t2m would
# do as well: ``model.predict("stations.csv", ...)``.

stations = new[-1].to_dataframe().reset_index().sample(30, random_state=0)
prediction = model.predict(stations, new[-1])
figure, axes = plt.subplots(2, 2, figsize=(10, 8), sharex=True, sharey=True, layout="constrained")
scale = {"vmin": float(new[-1].min()), "vmax": float(new[-1].max())}
new[-1].plot(ax=axes[0, 0], **scale)
prediction["mean"].plot(ax=axes[0, 1], **scale)
prediction["std"].plot(ax=axes[1, 0], cmap="magma")
prediction["local_effect"].plot(ax=axes[1, 1])
for axis, title in zip(axes.flat, ("truth", "prediction", "standard deviation", "local effect"), strict=True):
    axis.scatter(stations["longitude"], stations["latitude"], s=12, facecolors="none", edgecolors="black")
    axis.set_title(title)
    axis.label_outer()

# %%
# How good is it?
# ---------------
# ``calibrate`` scales its error bars by its errors on five further days. On the last five it is compared with kriging,
# inverse distances and the climatology of each place, all from the same observations.

dates = np.datetime_as_string(new["time"], "D")
calibrated = model.calibrate(field, days=(dates[0], dates[4]))
print(calibrated.validate(field, days=(dates[5], dates[9])))

# %%
# Where should three more stations be?
# ------------------------------------
# Of every fourth point of the grid, those that most reduce the variance of the whole map.

print(model.suggest(stations, new[-1, ::4, ::4], number=3).round(2))
