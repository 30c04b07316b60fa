"""
GPUs and clusters
=================

Everything in ``aenp`` runs on a laptop. Three things can become large: training, which Lightning spreads over GPUs and
machines; simulations, which Dask spreads over workers; and maps, which Dask makes piece by piece. This script runs all
three on whatever machine it finds, in small.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import dask.array
import numpy as np
import pandas as pd
import torch
import xarray as xr
from distributed import Client
from matplotlib import pyplot as plt

import aenp
from aenp.data import GibbsTasks
from aenp.experiments import experiment_class
from aenp.training import Machine, Recipe, train

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 100))
scratch = TemporaryDirectory()

# %%
# Training on GPUs
# ----------------
# ``Machine`` names what a run computes on. A single GPU is used without being asked for; with several, each has batches
# of its own, and gradients are averaged. On the command line the same is ``aenp train gp --model tnp --symmetry approx
# --preset paper --devices 4 --num-nodes 2 --precision bf16-mixed``; under SLURM, start it by ``srun`` with one task for
# each GPU, and Lightning finds the rest.

gpus = torch.cuda.device_count()
machine = Machine(devices=gpus or 1, num_nodes=1, precision="bf16-mixed" if gpus else "32-true")
model = aenp.ConvCNP(dim_x=1, dim_y=1, channels=32, fixed_inputs=aenp.FixedInputs(1, domain=[(-7, 7)]))
outcome = train(model, GibbsTasks(equal_sizes=True), Recipe(STEPS), Path(scratch.name, "run"), machine=machine)
print(f"{outcome.steps} steps in {outcome.minutes:.1f} minutes on {gpus or 'no'} GPUs, {machine}")

# %%
# Simulations on a cluster
# ------------------------
# The experiment ``smoke`` makes its own data. On a cluster, ``aenp data smoke --num 25000 --out smoke.zarr --scheduler
# tcp://10.0.0.1:8786`` gives the work to the workers of a Dask scheduler. Here the scheduler is a local one; with
# ``Client("tcp://10.0.0.1:8786")`` everything below would run on the cluster. A simulation depends on the seed and its
# number alone, so the data are the same on any number of workers, and a run that is stopped continues where it was.

client = Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None)
smoke = experiment_class("smoke")
for done in smoke.generate(Path(scratch.name, "smoke.zarr"), 4, 0, None, client.scheduler.address):
    print(f"{done} simulations")

# %%
# A map in pieces
# ---------------
# If the target's data are Dask arrays, so is the prediction: nothing is computed until it is written or drawn, and the
# whole map never has to fit into memory. Each piece sees all observations, so that there are no seams.

stations = pd.DataFrame({"latitude": [44.4, 45.5, 45.4, 41.9, 40.9], "longitude": [8.9, 9.2, 12.3, 12.5, 14.3]})
stations["t2m"] = [297.0, 300.0, 298.0, 301.0, 299.0]
coords = {"latitude": np.arange(38, 46.99, 0.1), "longitude": np.arange(8, 15.99, 0.1)}
target = xr.DataArray(dask.array.zeros((90, 80), chunks=(45, 40)), coords, tuple(coords))
prediction = aenp.pretrained("era5-2d/pttnp-approx").predict(stations, target)
print(prediction["mean"].data)
prediction[["mean", "std"]].to_zarr(Path(scratch.name, "map.zarr"), consolidated=False)
written = xr.open_zarr(Path(scratch.name, "map.zarr"), consolidated=False).load()
client.close()

# %%

figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
for axis, name, title in zip(axes, ("mean", "std"), ("prediction", "standard deviation"), strict=True):
    written[name].plot(ax=axis)
    axis.scatter(stations["longitude"], stations["latitude"], color="black")
    axis.set_title(title)
    axis.label_outer()
scratch.cleanup()
