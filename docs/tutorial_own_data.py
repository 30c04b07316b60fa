"""From a gridded field to a map with error bars, on made-up data: python docs/tutorial_own_data.py [MINUTES]

Replace `made_up_field()` by `xr.open_dataset("your.nc")["t2m"]`; nothing else changes.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import aenp
from aenp.earth.maps import map_prediction


def made_up_field(days: int = 60) -> xr.DataArray:
    """Weather that drifts over a mountain: waves that are the same everywhere, and a place that is always cold."""
    latitude, longitude = np.arange(44.0, 52.0, 0.25), np.arange(2.0, 12.0, 0.25)
    phase = np.random.default_rng(0).uniform(0, 2 * np.pi, (3, days, 1, 1))
    wave = sum(np.sin((k + 1) / 2 * (longitude + latitude[:, None] / 2) + phase[k]) for k in range(3))
    mountain = np.exp(-((latitude[:, None] - 47) ** 2) / 2 - (longitude - 8) ** 2 / 4)
    coords = {"time": pd.date_range("2020-06-01", periods=days), "latitude": latitude, "longitude": longitude}
    attrs = {"units": "K", "long_name": "2 metre temperature"}
    return xr.DataArray(288 + 2 * wave - 8 * mountain, coords=coords, dims=tuple(coords), name="t2m", attrs=attrs)


def main(minutes: float, out: Path) -> xr.Dataset:
    field = made_up_field()

    # 1. Train on all days except the last ten. In each step the model sees some points of patches, and predicts others.
    model = aenp.fit(field[:-10], family="convcnp", symmetry="approx", minutes=minutes)
    model.save(out / "model.safetensors")

    # 2. Thirty stations report on a day that the model has not seen.
    stations = field[-1:].to_dataframe().reset_index().sample(30, random_state=0)

    # 3. Predict everywhere. The grid may be finer than that of training.
    prediction = model.predict(stations, "44,51.75,2,11.75,0.125")
    prediction.to_netcdf(out / "prediction.nc")
    map_prediction(prediction, model.observed(stations), out / "map.png")
    print(f"local effect at the mountain: {float(prediction['local_effect'].min()):.1f} K")

    # 4. Scale its error bars by its errors on five further days. How good is it on the last five, beside kriging?
    calibrated = model.calibrate(field, days=("2020-07-21", "2020-07-25"))
    validation = calibrated.validate(field, days=("2020-07-26", "2020-07-30"))
    print(validation)
    validation.plot(out / "scores.png")

    # 5. Where should three more stations be?
    print(model.suggest(stations, "44,51,2,11,2", number=3))
    return prediction


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0, Path("."))
