"""
ERA5 and stations
=================

A reanalysis such as ERA5 is known everywhere, but coarse; stations are true, but few. With ``given``, a model learns
the *difference* between the two from stations, and corrects the reanalysis where there are none.

With a directory of ERA5 temperatures, daily or so, as argument, ``python 04_era5_and_stations.py DIR``, the script
takes its reanalysis from there; without, it makes up one. The stations are made up in both cases: yours would be
``pd.read_csv("stations.csv")``.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt

import aenp

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 300))

# %%
# A reanalysis
# ------------


def made_up_reanalysis(days: int = 50) -> xr.DataArray:
    """Waves of weather on a grid of half a degree."""
    latitude, longitude = np.arange(44.0, 50.01, 0.5), np.arange(3.0, 11.01, 0.5)
    rng = np.random.default_rng(0)
    north, east = rng.normal(0, 0.5, (2, 8, days, 1, 1))  # wave numbers, in radians per degree
    phase = rng.uniform(0, 2 * np.pi, (8, days, 1, 1))
    weather = np.cos(north * latitude[:, None] + east * longitude + phase).sum(axis=0)
    coords = {
        "time": pd.date_range("2021-01-01", periods=days),
        "latitude": ("latitude", latitude, {"units": "degrees_north"}),
        "longitude": ("longitude", longitude, {"units": "degrees_east"}),
    }
    return xr.DataArray(285 + 2 * weather, coords, tuple(coords), attrs={"units": "K", "long_name": "ERA5"})


if len(sys.argv) > 1:
    era5 = xr.open_mfdataset(sorted(Path(sys.argv[1]).glob("*.nc")))["t2m"][:50, :48, :48].load()
else:
    era5 = made_up_reanalysis()
era5 = era5.rename("era5")

# %%
# Stations
# --------
# Fifty stations observe what the reanalysis cannot resolve: each lies some hundred metres above or below the mean
# height of its cell, with 6.5 K for each kilometre, and the south is warmer than the reanalysis says.

rng = np.random.default_rng(1)
south, north, west, east = (float(f(era5[name])) for name in ("latitude", "longitude") for f in (np.min, np.max))
stations = pd.DataFrame({"latitude": rng.uniform(south, north, 50), "longitude": rng.uniform(west, east, 50)})
stations["above_cell [m]"] = rng.normal(0, 300, 50)
table = era5.interp(stations[["latitude", "longitude"]].to_xarray()).to_dataframe("value").reset_index()
table = table.merge(stations, on=["latitude", "longitude"]).drop(columns="index")
warmer = 3 * (north - table["latitude"]) / (north - south)
table["t2m [K]"] = table.pop("value") + warmer - 0.0065 * table["above_cell [m]"] + rng.normal(0, 0.3, len(table))
print(table.head(3))

# %%
# Fit what ERA5 does not know
# ---------------------------
# Covariates may be fields or columns. ``given="era5"`` makes the field called ``era5`` the first guess: the model
# learns differences to it. Without ``given`` it would be a covariate like any other.

unseen = stations.sample(10, random_state=1)
known = table.merge(unseen, "left", indicator="kept")["kept"].eq("left_only").array
training = table[known & (table["time"] < table["time"].quantile(0.8))]
model = aenp.fit(training, "tnp", covariates=[era5, "above_cell"], given="era5", steps=STEPS, variable="t2m")

# %%
# At the ten stations left out, on later days, beside the reanalysis itself (``era5``, without its mean error) and
# kriging of the same differences, which however does not know ``above_cell``. What such a model is worth at real
# stations is told in ``benchmarks/stations_given_era5.md``.

print(model.validate(table, stations=unseen, covariates=[era5], variable="t2m", tasks=5))

# %%
# The corrected map
# -----------------
# On the last day, at the mean height of each cell.

today, cells = table[table["time"] == table["time"].max()], xr.zeros_like(era5[-1]).rename("above_cell")
cells.attrs["units"] = "m"
prediction = model.predict(today, era5[-1], "t2m", covariates=[era5, cells.drop_vars("time")])
figure, axes = plt.subplots(1, 3, figsize=(14, 3.8), sharey=True, layout="constrained")
scale = {"vmin": float(era5[-1].min()), "vmax": float(prediction["mean"].max())}
era5[-1].plot(ax=axes[0], **scale)
prediction["mean"].squeeze().plot(ax=axes[1], **scale)
correction = (prediction["mean"] - era5[-1]).assign_attrs(long_name="prediction minus ERA5", units="K")
correction.squeeze().plot(ax=axes[2])
for axis, title in zip(axes, ("reanalysis", "given the stations", "difference"), strict=True):
    axis.scatter(today["longitude"], today["latitude"], s=10, color="black")
    axis.set_title(title)
    axis.label_outer()
