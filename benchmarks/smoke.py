"""The speed of the smoke simulator and of PhiFlow: `python -m benchmarks.smoke` writes `smoke.md` beside this file."""

import os
import time
import warnings
from pathlib import Path

import numpy as np
import tyro

from aenp.evaluation.tables import markdown_table
from aenp.experiments.smoke.simulator import Box, Plumes, run
from benchmarks.measure import in_new_process
from benchmarks.speed import machine

HERE = Path(__file__).parent


def box_of(size: int, steps: int) -> Box:
    """The experiment's box, which has 128 cells along each side, at another size."""
    scale = size / 128
    obstacle = (64.0 * scale, 100.0 * scale)
    return Box(size, obstacle, obstacle_radius=15.0 * scale, inflow_y=5.0 * scale, steps=steps)


def condition(box: Box) -> tuple[float, float, float]:
    """Radius and place of the inflow, and buoyancy."""
    return 15.0 * box.size / 128, box.size / 2, 0.3


def phiflow_seconds(box: Box, compiled: bool) -> tuple[float, np.ndarray]:
    """The time of one simulation, not counting compilation, and its density."""
    warnings.simplefilter("ignore")
    from benchmarks.phiflow_reference import simulation

    reference = simulation(*condition(box), box, compiled)
    if compiled:
        reference()
    start = time.perf_counter()
    density = reference()
    return time.perf_counter() - start, density


def our_seconds(box: Box, batch: int) -> tuple[float, np.ndarray]:
    """The time of one simulation in a batch, the median of five batches, and its density."""
    plumes = Plumes(*(np.full(batch, value) for value in condition(box)))
    density, _ = run(plumes, box)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run(plumes, box)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) / batch, density[0]


def main(size: int = 128, steps: int = 35, batch: int = 32, out: Path = HERE) -> None:
    """Simulates the same plume with PhiFlow and with this library, and compares times and densities.

    Args:
        size: cells along each side of the box.
        steps: length of a simulation.
        batch: plumes that are simulated together here.
        out: directory for `smoke.md`.
    """
    box = box_of(size, steps)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    plain, truth = in_new_process(phiflow_seconds, box, False)
    compiled, _ = in_new_process(phiflow_seconds, box, True)
    rows = [
        ["PhiFlow, NumPy", f"{plain:.2f}", "1", "", ""],
        ["PhiFlow, JAX", f"{compiled:.2f}", f"{plain / compiled:.1f}", "1", ""],
    ]
    seconds, density = in_new_process(our_seconds, box, batch)
    error = np.linalg.norm(density - truth) / np.linalg.norm(truth)
    rows.append(["aenp", f"{seconds:.4f}", f"{plain / seconds:.0f}", f"{compiled / seconds:.0f}", f"{error:.0e}"])
    header = ["simulator", "seconds a simulation", "times PhiFlow, NumPy", "times PhiFlow, JAX", "relative L2 error"]
    page = f"""# The speed of the smoke simulator

Written by `python -m benchmarks.smoke`: {machine()}.

One plume of {steps} steps on {size} × {size} cells, on one core. PhiFlow's time under JAX is without
compilation; ours is for batches of {batch}. The error is that of the final density, against PhiFlow; all are in
double precision.

{markdown_table(header, rows)}
"""
    (out / "smoke.md").write_text(page)
    print(page)


if __name__ == "__main__":
    tyro.cli(main)
