"""Predictions as files, which appear under their names only once they are complete."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import xarray as xr
from zarr.abc.buffer import Buffer
from zarr.storage import MemoryStore

from aenp.arguments import check_place
from aenp.saving import written_whole

FORMATS = (".nc", ".nc4", ".csv", ".zarr")
"How the names of predictions may end."


def write_prediction(prediction: xr.Dataset, file: Path) -> Path:
    """Writes the prediction as NetCDF, or as CSV or Zarr if the file's name says so, and returns the file.

    It appears under its name only once it is complete; an existing file is kept until then.
    """
    if file.suffix == ".zarr":
        with _store_written_whole(file) as temporary:
            _to_zarr(prediction, temporary)
        return file
    with written_whole(file) as temporary:
        if file.suffix == ".csv":
            in_columns(prediction).to_dataframe().reset_index().to_csv(temporary, index=False)
        else:
            _to_netcdf(prediction, temporary, file)
    return file


def in_columns(prediction: xr.Dataset) -> xr.Dataset:
    """The prediction with a variable for each quantile and sample, as `quantile_0.05`, so that a place is one row."""
    for dimension in ("quantile", "sample"):
        for name in [str(name) for name, values in prediction.items() if dimension in values.dims]:
            single = name.removesuffix("s")
            parts = {
                f"{single}_{label:g}": prediction[name].sel({dimension: label}, drop=True)
                for label in prediction[dimension].values
            }
            prediction = prediction.drop_vars(name).assign(parts)
        prediction = prediction.drop_vars(dimension, errors="ignore")
    return prediction


def _to_zarr(prediction: xr.Dataset, directory: Path) -> None:
    """Through memory: after an error, Zarr's own thread would still be writing files while they are removed."""
    content: dict[str, Buffer] = {}
    prediction.to_zarr(MemoryStore(content), mode="w", consolidated=False)
    for name, value in content.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(value.to_bytes())


def _to_netcdf(prediction: xr.Dataset, temporary: Path, file: Path) -> None:
    try:
        prediction.to_netcdf(temporary, engine="netcdf4")
    except RuntimeError as error:
        raise OSError(f"{file} cannot be written: {error}. Is the disk full?") from error


def check_output(file: Path) -> None:
    """Raises an error if no prediction can be written under this name."""
    if file.suffix not in FORMATS:
        raise ValueError(f"{file} is no name for a prediction; choose one that ends in {', '.join(FORMATS)}")
    check_place(file, is_directory=file.suffix == ".zarr")
    if file.suffix == ".zarr":
        _check_replaceable(file)


def _check_replaceable(store: Path) -> None:
    """Raises an error if there is something other than a Zarr store, which must not be lost."""
    if store.exists() and not (store / "zarr.json").exists():
        raise FileExistsError(f"{store} exists and is not a Zarr store, so it is not replaced; choose another path")


@contextmanager
def _store_written_whole(store: Path) -> Iterator[Path]:
    """A directory to write in place of `store`, which it replaces at the end, unless anything fails."""
    _check_replaceable(store)
    store.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{store.name}.", suffix=".part", dir=store.parent) as beside:
        new, old = Path(beside, "new"), Path(beside, "old")
        yield new
        try:
            if store.exists():
                store.rename(old)
            new.rename(store)
        except BaseException:
            if old.exists() and not store.exists():
                old.rename(store)
            raise
