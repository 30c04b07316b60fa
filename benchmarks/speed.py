"""Measures speed and memory, prints the tables and writes `benchmarks/results.md` and `benchmarks/scaling.png`."""

import datetime
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch.profiler import ProfilerActivity, profile

import aenp
from aenp.evaluation.tables import markdown_table
from aenp.training.memory import reuse_memory
from benchmarks.measure import in_new_process, interleaved_times, peak_memory
from benchmarks.reference import plain_formula

HERE = Path(__file__).parent
KINDS = ("plain formula", "mlp, tiled", "spectral", "no symmetry")
console = Console()


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Args:
        tasks: sizes of the batches for attention: tasks, context points, targets; the others take the first one.
        points: numbers of context and target points in the scaling.
        large: the same for pseudo-tokens on a grid.
        matrix: side of the matrices whose product the convolutions are compared with.
        threads: numbers of threads; targets are judged with the first, the scaling is measured with the last.
        seconds: how long the models in a comparison take turns.
    """

    tasks: tuple[tuple[int, int, int], ...] = ((16, 32, 128), (4, 256, 256))
    points: tuple[int, ...] = (100, 300, 1000, 3000, 10000, 20000)
    large: tuple[int, ...] = (1000, 10_000, 100_000)
    matrix: int = 2048
    threads: tuple[int, ...] = (1, 2)
    seconds: float = 15.0


def tnp(kind: str) -> aenp.TNP:
    """A TNP of the paper's width with five layers; `plain formula` is the baseline, written out in reference.py."""
    torch.manual_seed(0)
    if kind == "no symmetry":
        return aenp.TNP(1, 1, symmetry="none")
    model = aenp.TNP(1, 1, attention="spectral" if kind == "spectral" else "mlp")
    return plain_formula(model) if kind == "plain formula" else model


def random_task(batch: int, context: int, target: int) -> aenp.Task:
    torch.manual_seed(0)
    xc, xt = 4 * torch.rand(batch, context, 1) - 2, 6 * torch.rand(batch, target, 1) - 3
    return aenp.Task(xc, torch.randn_like(xc), xt, torch.randn_like(xt))


def training_step(model: aenp.NeuralProcess, task: aenp.Task) -> Callable[[], None]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimiser.zero_grad()
        (-aenp.loglik(model, task).mean()).backward()
        optimiser.step()

    return step


def tnp_training(kind: str, size: tuple[int, int, int]) -> Callable[[], None]:
    step = training_step(tnp(kind), random_task(*size))
    training_step(tnp(kind), random_task(1, 8, 8))()  # triggers what is loaded only once
    return step


def tnp_forward(kind: str, points: int) -> Callable[[], Any]:
    model, task = tnp(kind).eval(), random_task(1, points, points)
    aenp.predict(model, random_task(1, 8, 8))
    return lambda: aenp.predict(model, task, chunk=points)


class Report:
    """Collects what is printed, as Markdown."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.verdicts: list[list[str]] = []

    def add(self, text: str) -> None:
        console.print(text, highlight=False)
        self.parts.append(text)

    def verdict(self, what: str, measured: float, target: float, at_least: bool = True, unit: str = "×") -> None:
        met = measured >= target if at_least else measured <= target
        sign = "≥" if at_least else "≤"
        row = [what, f"{measured:.2f} {unit}", f"{sign} {target:g} {unit}", "met" if met else "**not met**"]
        self.verdicts.append(row)
        console.print(" | ".join(row), style="green" if met else "red")

    def write(self, path: Path) -> None:
        table = markdown_table(["target", "measured", "wanted", "verdict"], self.verdicts)
        path.write_text("\n\n".join([self.parts[0], "## Targets", table, *self.parts[1:]]) + "\n")


def attention(report: Report, sizes: Sizes) -> None:
    """One training step of a TNP: time with one thread and two, and the memory it takes."""
    report.add("## Attention: one training step of a TNP, 128 wide, 8 heads, 5 layers")
    for size in sizes.tasks:
        name, times = name_of(size), attention_times(size, sizes)
        memory = {kind: peak_memory(tnp_training, kind, size) for kind in KINDS}
        report.add(f"Batch × (context + targets): {name}\n\n{attention_table(times, memory)}")
        first = times[sizes.threads[0]]
        base, plain = first["plain formula"], memory["no symmetry"]
        extra = (memory["mlp, tiled"] - plain) / (memory["plain formula"] - plain)
        slower = first["spectral"] / first["no symmetry"]
        report.verdict(f"mlp, tiled: faster than the plain formula ({name})", base / first["mlp, tiled"], 1.7)
        report.verdict(f"mlp, tiled: share of the plain formula's extra memory ({name})", extra, 0.1, False)
        report.verdict(f"spectral: faster than the plain formula ({name})", base / first["spectral"], 8)
        report.verdict(f"spectral: time of a TNP without symmetry ({name})", slower, 1.6, False)


def name_of(size: tuple[int, int, int]) -> str:
    return "{} × ({} + {})".format(*size)


def attention_with_memory_reused(report: Report, sizes: Sizes) -> None:
    """The same where the C library keeps freed memory, which helps most where most is allocated."""
    table = attention_table(attention_times(sizes.tasks[0], sizes), None)
    name = name_of(sizes.tasks[0])
    report.add(f"The same for {name} after `aenp.training.memory.reuse_memory()`, as for everything below:\n\n{table}")


def attention_times(size: tuple[int, int, int], sizes: Sizes) -> dict[int, dict[str, float]]:
    times = {}
    for threads in sizes.threads:
        torch.set_num_threads(threads)
        times[threads] = interleaved_times({kind: tnp_training(kind, size) for kind in KINDS}, sizes.seconds)
    return times


def attention_table(times: dict[int, dict[str, float]], memory: dict[str, float] | None) -> str:
    threads = [f"{n} thread{'s' if n > 1 else ''}" for n in times]
    faster = [f"faster, {n}" for n in times]
    first = next(iter(times.values()))
    rows = [
        [
            kind,
            *(f"{1e3 * each[kind]:.0f} ms" for each in times.values()),
            *(f"{each['plain formula'] / each[kind]:.1f} ×" for each in times.values()),
            f"{first[kind] / first['no symmetry']:.2f} ×",
            "" if memory is None else f"{memory[kind]:.0f} MB",
        ]
        for kind in KINDS
    ]
    return markdown_table(["attention", *threads, *faster, "time / no symmetry", "memory"], rows)


def paper_convcnp() -> aenp.ConvCNP:
    """The paper's 1-D ConvCNP (T~)."""
    torch.manual_seed(0)
    fixed = aenp.FixedInputs(1, domain=[(-7, 7)])
    return aenp.ConvCNP(1, 1, points_per_unit=46, network="cnn", channels=64, kernel=21, layers=9, fixed_inputs=fixed)


def convcnp_times(threads: int, sizes: Sizes) -> tuple[dict[str, float], float]:
    """The times of a training step and of a product of two matrices, and the step's nominal number of operations."""
    reuse_memory()
    torch.set_num_threads(threads)
    model, task, a = paper_convcnp(), random_task(*sizes.tasks[0]), torch.randn(sizes.matrix, sizes.matrix)
    cells = len(task) * model.lattice(task).shape[0]
    times = interleaved_times({"step": training_step(model, task), "matmul": lambda: a @ a}, sizes.seconds)
    return times, 3 * 9 * 2 * cells * 64 * 64 * 21


def convolutions(report: Report, sizes: Sizes) -> None:
    """The paper's 1-D ConvCNP in training, against a product of two matrices."""
    report.add("## Convolutions: a step of the paper's 1-D ConvCNP (9 layers, 64 channels, k = 21, 46 cells per unit)")
    rows = []
    for threads in sizes.threads:
        times, nominal = in_new_process(convcnp_times, threads, sizes)
        rate, limit = nominal / times["step"], 2 * sizes.matrix**3 / times["matmul"]
        figures = f"{1e3 * times['step']:.0f} ms", f"{rate / 1e9:.0f}", f"{limit / 1e9:.0f}", f"{rate / limit:.0%}"
        rows.append([str(threads), *figures])
        if threads == sizes.threads[0]:
            report.verdict("ConvCNP training: share of the matrix product's rate", rate / limit, 0.85, unit="")
    table = markdown_table(["threads", "step", "GFLOP/s", "matmul GFLOP/s", "share"], rows)
    report.add(
        f"The whole step, optimiser included, is timed; only the {nominal / 1e9:.1f} GFLOP that its convolutions take "
        f"as plain sums, forward and backward, are counted.\n\n{table}"
    )


def profiles(report: Report, sizes: Sizes) -> None:
    """Where a training step's time goes, by operator."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    fixed = aenp.FixedInputs(1, domain=[(-7, 7)])
    models = {
        "TNP (T~), spectral": aenp.TNP(1, 1, attention="spectral", fixed_inputs=fixed),
        "ConvCNP (T~)": paper_convcnp(),
    }
    for name, model in models.items():
        step = training_step(model, random_task(*sizes.tasks[0]))
        step()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(5):
                step()
        events = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
        total = sum(event.self_cpu_time_total for event in events)
        rows = [[e.key, f"{e.self_cpu_time_total / total:.1%}", str(e.count // 5)] for e in events[:10]]
        table = markdown_table(["operator", "share of the step", "calls a step"], rows)
        report.add(f"## Profile: a training step of {name}, {name_of(sizes.tasks[0])} points, one thread\n\n{table}")


def scaling(report: Report, sizes: Sizes, picture: Path) -> None:
    """One forward pass with as many context as target points; the slower kinds only up to a bearable size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    threads = sizes.threads[-1]
    torch.set_num_threads(threads)
    limits = {"plain formula": 1000, "mlp, tiled": 3000}
    curves: dict[str, list[tuple[int, float, float]]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for points in (p for p in sizes.points if p <= limits.get(kind, sizes.points[-1])):
            step = tnp_forward(kind, points)
            time = interleaved_times({kind: step}, seconds=0)[kind] if points <= 1000 else _once(step)
            curves[kind].append((points, time, peak_memory(tnp_forward, kind, points)))
            console.print(f"{kind}, {points} points: {time:.2f} s, {curves[kind][-1][2]:.0f} MB")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for kind, curve in curves.items():
        for axis, values in zip(axes, ([c[1] for c in curve], [max(c[2], 0.1) for c in curve]), strict=True):
            axis.loglog([c[0] for c in curve], values, marker="o", label=kind)
    for axis, label in zip(
        axes, (f"time of a forward pass, {threads} threads [s]", "peak extra memory [MB]"), strict=True
    ):
        axis.set(xlabel="context points = target points", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].legend(title="TNP, 5 layers, attention")
    figure.savefig(picture, dpi=120)
    rows = [[kind, str(n), f"{t:.2f} s", f"{m:.0f} MB"] for kind, curve in curves.items() for n, t, m in curve]
    report.add("## Scaling: one forward pass with n context and n target points\n\n![scaling](scaling.png)")
    report.add(markdown_table(["attention", "n", "time", "memory"], rows))
    largest = f"{sizes.points[-1]:,}"
    report.verdict(
        f"spectral, {largest} + {largest} points, peak memory", curves["spectral"][-1][2] / 1024, 4, False, "GB"
    )


def tokens_on_grid(points: int) -> Callable[[], Any]:
    """A forward pass of a PTTNP in two dimensions, with four context points for each pseudo-token of its grid."""
    torch.manual_seed(0)
    options = {"attention": "spectral", "wavelengths": (0.5, 8.0), "form": "perceiver"}
    model = aenp.PTTNP(2, 1, pseudo_tokens="grid", pseudo_spacing=1.0, **options).eval()  # type: ignore[arg-type]
    x = (points / 4) ** 0.5 * torch.rand(1, 2 * points, 2, dtype=torch.float64)
    task = aenp.Task(x[:, :points], torch.randn(1, points, 1), x[:, points:])
    return lambda: aenp.predict(model, task)


def many_points(report: Report, sizes: Sizes) -> None:
    """One forward pass of a PTTNP whose pseudo-tokens lie on a grid, with as many context as target points."""
    threads = sizes.threads[-1]
    torch.set_num_threads(threads)
    tokens_on_grid(8)()
    rows = []
    for points in sizes.large:
        time, memory = _once(tokens_on_grid(points)), peak_memory(tokens_on_grid, points)
        rows.append([f"{points:,}", f"{time:.2f} s", f"{memory:.0f} MB"])
    report.add(
        "## Many points: a PTTNP with pseudo-tokens on a grid, 128 wide, 8 heads, 5 layers\n\n"
        f"One forward pass in two dimensions with n context and n target points, {threads} threads.\n\n"
        + markdown_table(["grid, n", "time", "memory"], rows)
    )
    name = f"PTTNP on a grid, {points:,} + {points:,} points"
    report.verdict(f"{name}, time", time, 120, False, "s")
    report.verdict(f"{name}, peak memory", memory / 1024, 4, False, "GB")


def _once(step: Callable[[], Any]) -> float:
    import time

    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def machine() -> str:
    lines: Iterable[str] = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    threads = torch.get_num_threads()
    return (
        f"{datetime.date.today()}, {cpu}, {threads} core{'s' * (threads > 1)}; Python {platform.python_version()}, "
        f"torch {torch.__version__}, aenp {aenp.__version__}"
    )


def main(sizes: Sizes = Sizes(), out: Path = HERE) -> None:  # noqa: B008
    """Measures everything and writes `results.md` and `scaling.png`.

    Args:
        sizes: how much is measured.
        out: directory for what is written.
    """
    report = Report()
    report.add(
        "# Benchmarks\n\nWritten by `make benchmark`. Ratios are of medians of runs that take turns in one process; "
        "targets are judged with one thread. Memory is the peak of a process of its own above what it "
        f"held before the step.\n\n{machine()}."
    )
    attention(report, sizes)
    reuse_memory()
    attention_with_memory_reused(report, sizes)
    convolutions(report, sizes)
    profiles(report, sizes)
    scaling(report, sizes, out / "scaling.png")
    many_points(report, sizes)
    report.write(out / "results.md")
