"""How fast smoke is simulated, beside PhiFlow: `python -m benchmarks.smoke` writes `smoke.md` beside this file."""

import os
import time
import warnings
from pathlib import Path

import numpy as np

from aenp.data.smoke import BOX, Plumes, run
from aenp.report import markdown_table
from benchmarks.measure import in_new_process
from benchmarks.speed import machine

HERE = Path(__file__).parent
CONDITION = (15.0, 64.0, 0.3)
BATCH = 32


def phiflow_seconds(compiled: bool) -> tuple[float, np.ndarray]:
    """One simulation, the second where the first one compiles."""
    warnings.simplefilter("ignore")
    from benchmarks.phiflow_reference import simulation

    reference = simulation(*CONDITION, BOX, compiled)
    if compiled:
        reference()
    start = time.perf_counter()
    density = reference()
    return time.perf_counter() - start, density


def our_seconds() -> tuple[float, np.ndarray]:
    """One simulation of a batch, the median of five batches."""
    plumes = Plumes(*(np.full(BATCH, value) for value in CONDITION))
    density, _ = run(plumes)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run(plumes)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) / BATCH, density[0]


def main() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    plain, truth = in_new_process(phiflow_seconds, False)
    compiled, _ = in_new_process(phiflow_seconds, True)
    rows = [
        ["PhiFlow, NumPy", f"{plain:.2f}", "1", "", ""],
        ["PhiFlow, JAX", f"{compiled:.2f}", f"{plain / compiled:.1f}", "1", ""],
    ]
    seconds, density = in_new_process(our_seconds)
    error = np.linalg.norm(density - truth) / np.linalg.norm(truth)
    rows.append(["aenp", f"{seconds:.4f}", f"{plain / seconds:.0f}", f"{compiled / seconds:.0f}", f"{error:.0e}"])
    header = ["simulator", "seconds a simulation", "times PhiFlow, NumPy", "times PhiFlow, JAX", "relative L2 error"]
    page = f"""# Smoke plumes, by how fast they are simulated

Written by `python -m benchmarks.smoke`: {machine()}.

One plume of {BOX.steps} steps on {BOX.size} × {BOX.size} cells, on one core. PhiFlow's time under JAX is without
compilation; ours is for batches of {BATCH}. The error is that of the density in the end, against PhiFlow; all are in
double precision.

{markdown_table(header, rows)}
"""
    (HERE / "smoke.md").write_text(page)
    print(page)


if __name__ == "__main__":
    main()
