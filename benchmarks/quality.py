"""What each kind of attention learns in the same time: `python -m benchmarks.quality --minutes 10`.

Trains TNP (T) on the 1-D Gibbs tasks with the paper's pairwise MLP and with spectral attention, both at once, each on a
core of its own, for the same wall-clock time; writes `quality.md`, `quality.csv` and `quality.png` beside this file.
"""

import csv
import datetime
import multiprocessing
import time
from pathlib import Path

import torch
import tyro
from torch.nn.utils import clip_grad_value_

import aenp
from aenp.data import GibbsTasks
from aenp.evaluation.tables import markdown_table
from aenp.experiments.gp.oracles import as_normal, equivariant

HERE = Path(__file__).parent
KINDS = ("mlp", "spectral")
Point = tuple[str, float, int, float, float]  # attention, minutes, steps, log-likelihood, its standard error


def held_out(tasks: int, seed: int) -> list[aenp.Task]:
    return [GibbsTasks().batch(64, index, seed) for index in range(tasks // 64)]


def score(values: torch.Tensor) -> tuple[float, float]:
    """Mean and standard error over tasks."""
    return values.mean().item(), values.std().item() / len(values) ** 0.5


def train(kind: str, minutes: float, tasks: int, seed: int, dim: int, layers: int) -> list[Point]:
    """The learning curve on held-out tasks; the clock is stopped while these are scored."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    source, test = GibbsTasks(equal_sizes=True), held_out(tasks, seed + 1)
    wavelengths = aenp.wavelengths([source.batch(16, index, seed) for index in range(8)])
    model = aenp.TNP(1, 1, attention=kind, wavelengths=wavelengths, dim=dim, heads=4, layers=layers)  # type: ignore[arg-type]
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    curve: list[Point] = []
    start, step = time.perf_counter(), 0
    while True:
        share = (time.perf_counter() - start) / (60 * minutes)
        if share >= (len(curve) + 1) / 10:
            paused = time.perf_counter()
            with torch.no_grad():
                mean, error = score(torch.cat([aenp.loglik(model, task) for task in test]))
            curve.append((kind, min(share, 1.0) * minutes, step, mean, error))
            print(f"{kind}: {curve[-1][1]:.1f} min, {step} steps, {mean:.4f} ± {error:.4f}", flush=True)
            start += time.perf_counter() - paused
            if share >= 1:
                return curve
        # A linear warm-up over a twentieth of the time, then a cosine.
        rate = min(share / 0.05, 0.5 + 0.5 * torch.cos(torch.tensor(torch.pi * min(share, 1.0))).item())
        optimiser.param_groups[0]["lr"] = 1e-3 * rate
        optimiser.zero_grad()
        (-aenp.loglik(model, source.batch(16, step, seed)).mean()).backward()
        clip_grad_value_(model.parameters(), 0.5)
        optimiser.step()
        step += 1


def main(
    minutes: float = 10.0, tasks: int = 1024, seed: int = 0, dim: int = 64, layers: int = 4, out: Path = HERE
) -> None:
    """Trains both for `minutes` and reports their learning curves on `tasks` held-out tasks.

    Args:
        minutes: wall-clock time of training, for each.
        tasks: number of held-out tasks, a multiple of 64.
        seed: of the parameters and of the training tasks; the held-out tasks have the next one.
        dim: width of the models.
        layers: their depth.
        out: directory for `quality.md`, `quality.csv` and `quality.png`.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(KINDS)) as pool:
        curves = pool.starmap(train, [(kind, minutes, tasks, seed, dim, layers) for kind in KINDS])
    points = [point for curve in curves for point in curve]
    with (out / "quality.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("attention", "minutes", "steps", "loglik", "standard_error"), *points])
    test = held_out(tasks, seed + 1)
    ceiling = score(torch.cat([as_normal(equivariant(GibbsTasks(), t)).log_prob(t.yt).mean((1, 2)) for t in test]))
    plot(curves, ceiling[0], out / "quality.png")
    rows = [[kind, f"{at:.1f}", str(step), f"{mean:.4f} ± {error:.4f}"] for kind, at, step, mean, error in points]
    best = {curve[-1][0]: curve[-1][3] for curve in curves}
    verdict = "met" if best["spectral"] > best["mlp"] else "**not met**"
    page = f"""# What each kind of attention learns in the same time

Written on {datetime.date.today()} by
`python -m benchmarks.quality --minutes {minutes:g} --tasks {tasks} --seed {seed} --dim {dim} --layers {layers}`.

TNP (T), {dim} wide, {layers} layers, 4 heads, on the 1-D Gibbs tasks, batch 16, one core each, {minutes:g} minutes of
training. Log-likelihood per target point, ± its standard error over {tasks} held-out tasks. A translation-equivariant
model with a Normal likelihood cannot expect more than {ceiling[0]:.4f} ± {ceiling[1]:.4f} on these tasks.

Spectral above the pairwise MLP: {best["spectral"]:.4f} against {best["mlp"]:.4f}, {verdict}.

![learning curves](quality.png)

{markdown_table(["attention", "minutes", "steps", "log-likelihood"], rows)}
"""
    (out / "quality.md").write_text(page)
    print(page)


def plot(curves: list[list[Point]], ceiling: float, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for curve in curves:
        axis.errorbar(
            *zip(*((p[1], p[3]) for p in curve), strict=True), [p[4] for p in curve], marker="o", label=curve[0][0]
        )
    axis.axhline(ceiling, color="black", linestyle="--", label="best equivariant Normal")
    axis.set(xlabel="training time on one core [min]", ylabel="held-out log-likelihood per target point [nats]")
    axis.legend(title="attention")
    axis.grid(alpha=0.3)
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    tyro.cli(main)
