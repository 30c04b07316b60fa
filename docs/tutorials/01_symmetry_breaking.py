"""
Symmetry breaking on the line
=============================

A shipped model, ``gp/tnp-approx``, has learned from functions that wiggle on one side of x = 0 and are smooth on the
other. It makes two predictions from the same observations: the full one, which knows where x = 0 is, and that of its
*equivariant part*, which treats all places alike. Here we look at both, at their difference, and at an *oracle*: the
best prediction that is possible at all, which for this made-up world is a formula.
"""

import pandas as pd
import torch
from matplotlib import pyplot as plt

import aenp
from aenp.data import GibbsTasks
from aenp.experiments.gp import oracles

model = aenp.pretrained("gp/tnp-approx")
world = GibbsTasks()  # the distribution that the model was trained on
print(f"{model.label}, trained on intervals of length {world.width:g} with centres from -7 to 7")

# %%
# Two predictions from one model
# ------------------------------
# Twenty-four observations around x = 0. Within ``model.equivariant()`` the model does not know where it is.
# ``Task.with_targets`` keeps the observations, and asks for predictions elsewhere.

observed = GibbsTasks(centre=(0, 0), num_context=(24, 24)).batch(batch_size=1, index=0, seed=1)
task = observed.with_targets(torch.linspace(-3, 3, 601)[None, :, None])
full = aenp.predict(model, task)
with model.equivariant():
    equivariant = aenp.predict(model, task)
oracle = oracles.bayes(world, task)

# %%
# On the smooth side, the full prediction draws a straighter line with a narrower band, as the oracle does; without the
# place, the model has to allow for wiggles everywhere. On the other side the oracle also uses a faint link across x =
# 0, which the model has not learned.

figure, (above, below) = plt.subplots(2, sharex=True, figsize=(8, 6), height_ratios=[2, 1], layout="constrained")
x = task.xt.flatten()
for name, prediction, colour in (("full prediction", full, "tab:blue"), ("equivariant part", equivariant, "tab:red")):
    mean, spread = prediction.mean.flatten(), 1.96 * prediction.stddev.flatten()
    above.plot(x, mean, color=colour, label=name)
    above.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2)
above.plot(x, oracle.mean.flatten(), color="black", linestyle="--", linewidth=1, label="oracle")
above.scatter(observed.xc, observed.yc, s=14, color="black", zorder=3, label="observations")
above.set(ylabel="y [no unit]", title="Two predictions of one model, with 95 % intervals")
above.legend(ncols=2)
below.plot(x, (full.mean - equivariant.mean).flatten(), color="tab:purple", label="of the means")
below.plot(x, (full.stddev - equivariant.stddev).flatten(), color="tab:olive", label="of the standard deviations")
below.axhline(0, color="grey", linewidth=0.8)
below.set(xlabel="x [no unit]", ylabel="y [no unit]", title="Their difference: what the model knows about the place")
below.legend()

# %%
# Elsewhere
# ---------
# The same observations, 20 units further, lie where the model has never been. There it falls back on its equivariant
# part, whose prediction moves along with the observations.

away = task.shift(20.0)
with model.equivariant():
    moved = aenp.predict(model, away)
print(f"equivariant part, before and after the move: {(moved.mean - equivariant.mean).abs().max():.1e}")
print(f"full prediction and equivariant part, there: {(aenp.predict(model, away).mean - moved.mean).abs().max():.1e}")

# %%
# What the place is worth
# -----------------------
# The mean log-likelihood of a target, over many tasks; higher is better, and no model can beat the oracle on average.
# Near the change point, knowing the place pays; far away there is nothing to know.

scores = {}
for where, centre in (("centre within 2 of x = 0", (-2, 2)), ("centre from 13 to 27", (13, 27))):
    tasks = GibbsTasks(centre=centre).batch(batch_size=128, index=0, seed=2)
    with torch.no_grad():
        rows = {"full prediction": aenp.loglik(model, tasks).mean()}
        with model.equivariant():
            rows["equivariant part"] = aenp.loglik(model, tasks).mean()
    rows["oracle"] = oracles.bayes(world, tasks).log_prob(tasks.yt.double()).mean()
    scores[where] = {name: value.item() for name, value in rows.items()}
print(pd.DataFrame(scores).to_string(float_format="%.3f"))
