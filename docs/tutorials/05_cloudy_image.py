"""
A cloudy satellite image
========================

One snapshot of the sea surface, half of it under clouds: what is the temperature below? ``aenp.interpolate`` answers at
once, with a model that is shipped. ``aenp.fit`` trains one on this single image. Because we made the image up, we can
look under the clouds.

Your own image is ``xr.open_dataset("sst.nc")["sst"]``, with NaN where nothing was seen.
"""

import os

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot as plt

import aenp

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 200))

# %%
# The image
# ---------
# Eddies of many sizes have a power spectrum that falls steeply with the wave number; clouds are where another such
# field is high.


def random_field(shape: tuple[int, int], slope: float, seed: int) -> np.ndarray:
    """A field with the power spectrum k^-slope, with mean 0 and standard deviation 1."""
    noise = np.fft.fft2(np.random.default_rng(seed).normal(size=shape))
    k = np.hypot(*np.meshgrid(*map(np.fft.fftfreq, shape), indexing="ij"))
    k[0, 0] = np.inf
    field = np.fft.ifft2(noise * k ** (-slope / 2)).real
    return field / field.std()


latitude, longitude = 35 + 0.05 * np.arange(48), -65 + 0.05 * np.arange(64)
coords = {
    "latitude": ("latitude", latitude, {"units": "degrees_north"}),
    "longitude": ("longitude", longitude, {"units": "degrees_east"}),
}
north_is_cooler = -1.5 * (latitude[:, None] - latitude.mean())
truth = xr.DataArray(20 + north_is_cooler + random_field((48, 64), 4, seed=1), coords, tuple(coords), "sst")
truth.attrs = {"units": "degC", "long_name": "sea surface temperature"}
cloudy = truth.where(random_field((48, 64), 3, seed=2) < 0)
print(f"{100 * float(cloudy.isnull().mean()):.0f} % of the image is under clouds")

# %%
# Two ways to fill it
# -------------------
# The context is the image with its gaps; the target is the image's own grid. The shipped model has seen many random
# fields; a fitted one has this image alone to learn from, and gets better with more steps.

at_once = aenp.interpolate(cloudy, cloudy)
model = aenp.fit(cloudy, symmetry="exact", steps=STEPS)
fitted = model.predict(cloudy, cloudy)

# %%
# Under the clouds
# ----------------
# The root mean square error, and the share of pixels within the 90 % interval. The last row is the mean of what is
# seen.

hidden, rows = cloudy.isnull(), {}
for name, filled in (("interpolate", at_once), ("fit", fitted)):
    error = (filled["mean"] - truth).where(hidden)
    within = (abs(error) < 1.645 * filled["std"]).where(hidden)
    rows[name] = {"RMSE [K]": float((error**2).mean() ** 0.5), "within 90 % interval": float(within.mean())}
rows["mean of the image"] = {"RMSE [K]": float(((cloudy.mean() - truth).where(hidden) ** 2).mean() ** 0.5)}
print(pd.DataFrame(rows).T.round(3))

# %%
# The maps in one scale, and the standard deviations: small between clouds, larger the farther one looks under them.
# Straight edges in the uncertainty of ``interpolate`` are where it changes from one group of neighbours to the next.

figure, axes = plt.subplots(3, 2, figsize=(10, 10), sharex=True, sharey=True, layout="constrained")
scale = {"vmin": float(truth.min()), "vmax": float(truth.max()), "cmap": "RdYlBu_r"}
panels = {"what the satellite sees": cloudy, "truth": truth, "interpolate": at_once["mean"], "fit": fitted["mean"]}
for axis, (title, field) in zip(axes.flat, panels.items(), strict=False):
    field.plot(ax=axis, **scale)
    axis.set_title(title)
for axis, (title, filled) in zip(axes[2], (("interpolate", at_once), ("fit", fitted)), strict=True):
    filled["std"].plot(ax=axis, cmap="magma", vmin=0)
    axis.set_title(f"{title}: uncertainty")
for axis in axes.flat:
    axis.label_outer()
