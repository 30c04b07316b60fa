"""The smoke plume in PhiFlow, which the simulator of the smoke experiment is tested against and compared with."""

from collections.abc import Callable
from typing import Any

import numpy as np

from aenp.experiments.smoke.simulator import Box


def simulation(radius: float, x: float, buoyancy: float, box: Box, compiled: bool = False) -> Callable[[], Any]:
    """A function that runs the simulation in float64 and returns the smoke's final density.

    Args:
        radius: of the inflow.
        x: its place.
        buoyancy: of the smoke.
        box: the box.
        compiled: with JAX, each step as a whole; otherwise with NumPy.
    """
    if compiled:
        from phi.jax import flow
    else:
        from phi import flow
    flow.math.set_global_precision(64)
    bounds, size = flow.Box(x=box.size, y=box.size), {"x": box.size, "y": box.size}
    obstacle = flow.Obstacle(flow.Sphere(x=box.obstacle[0], y=box.obstacle[1], radius=box.obstacle_radius))
    source = flow.Sphere(x=x, y=box.inflow_y, radius=radius)
    solve = flow.Solve("CG", 1e-10, 1e-10, rank_deficiency=0, max_iterations=5000)

    def step(density: Any, velocity: Any) -> tuple[Any, Any]:
        # Takes bare values, because JAX compiles functions of these.
        density = flow.CenteredGrid(density, flow.ZERO_GRADIENT, bounds, **size)
        velocity = flow.StaggeredGrid(velocity, 0, bounds, **size)
        inflow = box.inflow_rate * flow.resample(source, to=density, soft=True)
        density = flow.advect.mac_cormack(density, velocity, box.dt) + box.dt * inflow
        lift = flow.resample(density * (0, buoyancy), to=velocity)
        velocity = flow.advect.semi_lagrangian(velocity, velocity, box.dt) + box.dt * lift
        velocity, _ = flow.fluid.make_incompressible(velocity, obstacle, solve)
        return density.values, velocity.values

    step = flow.math.jit_compile(step) if compiled else step

    def run() -> np.ndarray:
        density = flow.CenteredGrid(0.0, flow.ZERO_GRADIENT, bounds, **size).values
        velocity = flow.StaggeredGrid(0.0, 0, bounds, **size).values
        for _ in range(box.steps):
            density, velocity = step(density, velocity)
        return density.numpy("x,y")

    return run
