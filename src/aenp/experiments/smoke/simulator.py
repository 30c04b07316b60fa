"""Smoke plumes in a closed box with an obstacle: a fast simulator (section 5.2 and appendix E.2).

A step is MacCormack advection of the smoke, inflow, semi-Lagrangian advection of the velocity, buoyancy, and the
projection of the velocity onto fields without divergence, which takes most of the time in PhiFlow, the reference. The
obstacle never moves, so the pressure's matrix is constant: that of the empty box, diagonal in cosines, minus the faces
that the obstacle cuts, a correction of small rank.

A plume amplifies round-off: in single precision the number of threads, the size of the batch or the type of CPU can
change its density by several per cent of the largest one, in double precision by about 1e-12 of it. So everything is
computed in double precision.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray

CELL_RADIUS = math.sqrt(0.5)
"Half the diagonal of a cell, over which edges of discs are smoothed."


@dataclass(frozen=True)
class Box:
    """A closed box of size × size unit cells, and the disc in it that blocks the smoke.

    Args:
        size: cells along each side.
        obstacle: its centre.
        obstacle_radius: its radius.
        inflow_y: height of the inflow's centre.
        inflow_rate: smoke that flows in, per unit time, where the inflow is.
        dt: length of a step.
        steps: number of steps.
    """

    size: int = 128
    obstacle: tuple[float, float] = (64.0, 100.0)
    obstacle_radius: float = 15.0
    inflow_y: float = 5.0
    inflow_rate: float = 2.0
    dt: float = 0.5
    steps: int = 35


BOX = Box()
RADIUS, PLACES, BUOYANCY = (5.0, 30.0), (30.0, 64.0, 110.0), (0.1, 0.5)


@dataclass(frozen=True)
class Plumes:
    """Initial conditions: radius r ~ U[5, 30] and place x ∈ {30, 64, 110} of the inflow, buoyancy B ~ U[0.1, 0.5]."""

    radius: Float[ndarray, " batch"]
    x: Float[ndarray, " batch"]
    buoyancy: Float[ndarray, " batch"]

    @staticmethod
    def draw(indices: range, seed: int) -> "Plumes":
        """The plumes with the given numbers; each is a function of its number and the seed alone."""
        generators = [np.random.default_rng((seed, index)) for index in indices]
        rows = [(g.uniform(*RADIUS), g.choice(PLACES), g.uniform(*BUOYANCY)) for g in generators]
        return Plumes(*np.array(rows).reshape(-1, 3).T)

    def __len__(self) -> int:
        return len(self.radius)


def simulate(plumes: Plumes, box: Box = BOX) -> Float[ndarray, "batch x y"]:
    """The smoke's density in the end, in cells [x, y], in float32.

    The same for a plume alone and in any batch, with any number of threads and on any CPU, except for the rounding of
    the last digit.
    """
    smoke, _ = run(plumes, box)
    return smoke.astype(np.float32)


def run(
    plumes: Plumes, box: Box = BOX
) -> tuple[Float[ndarray, "batch x y"], tuple[Float[ndarray, "batch x1 y"], Float[ndarray, "batch x y1"]]]:
    """The smoke's density and the velocities through the cells' faces in the end, walls included, in float64."""
    from threadpoolctl import threadpool_limits  # needed only for simulations

    from aenp.experiments.smoke.advection import advect_smoke, advect_velocity

    projection = Projection.of(box)
    batch, size = len(plumes), box.size
    smoke, spare = np.zeros((2, batch, size, size))
    u, u_next = np.zeros((2, batch, size + 1, size))
    v, v_next = np.zeros((2, batch, size, size + 1))
    centres = np.arange(size) + 0.5
    distance = np.hypot(centres[:, None] - plumes.x[:, None, None], centres - box.inflow_y)
    inflow = np.clip(0.5 - (distance - plumes.radius[:, None, None]) / CELL_RADIUS, 0, 1)
    inflow *= box.dt * box.inflow_rate
    lift = box.dt * plumes.buoyancy
    with threadpool_limits(1):  # the products are too small for several threads
        for _ in range(box.steps):
            advect_smoke(smoke, u, v, box.dt, inflow, spare)
            advect_velocity(u, v, box.dt, u_next, v_next)
            smoke, spare = spare, smoke
            u, u_next, v, v_next = u_next, u, v_next, v
            v[:, :, 1:-1] += lift[:, None, None] / 2 * (smoke[:, :, 1:] + smoke[:, :, :-1])
            projection(u, v)
    return smoke, (u, v)


class Projection:
    """v − ∇p with ∇²p = ∇·v in the fluid and ∂p/∂n = 0 at walls and obstacle.

    With A the matrix of the empty box and U the faces that the obstacle cuts, (A + U Uᵀ) p = d has the solution
    p = A⁺d − A⁺U (I + UᵀA⁺U)⁺ UᵀA⁺d (Woodbury). A⁺ is diagonal in cosines.
    """

    def __init__(self, box: Box) -> None:
        size = box.size
        k = np.arange(size)
        cosines = np.sqrt(2 / size) * np.cos(np.pi / size * np.outer(k, k + 0.5))
        cosines[0] /= np.sqrt(2)
        eigenvalues = 2 * np.cos(np.pi / size * k) - 2
        total = eigenvalues[:, None] + eigenvalues
        total[0, 0] = 1.0
        inverse = 1 / total
        inverse[0, 0] = 0.0

        faces, centres = np.arange(size + 1.0), k + 0.5
        x, y = box.obstacle
        fluid = (centres[:, None] - x) ** 2 + (centres - y) ** 2 > box.obstacle_radius**2
        at_u, at_v = _open(faces, centres, box), _open(centres, faces, box)
        at_u[[0, -1]], at_v[:, [0, -1]] = 0.0, 0.0
        cut = [(i, j, i + 1, j) for i, j in np.argwhere(fluid[1:] != fluid[:-1])]
        cut += [(i, j, i, j + 1) for i, j in np.argwhere(fluid[:, 1:] != fluid[:, :-1])]
        first, second = np.array([(i * size + j, m * size + n) for i, j, m, n in cut], int).reshape(-1, 2).T
        sources = np.zeros((len(cut), size * size))
        sources[np.arange(len(cut)), first], sources[np.arange(len(cut)), second] = 1.0, -1.0
        modes = inverse * (cosines @ sources.reshape(len(cut), size, size) @ cosines.T)
        spread = (cosines.T @ modes @ cosines).reshape(len(cut), size * size)
        capacitance = np.eye(len(cut)) + spread[:, first] - spread[:, second]
        # One more constant is free than in the empty box, the one within the obstacle: a singular value of zero.
        self.correction = np.linalg.pinv(capacitance, rcond=1e-9) @ spread
        self.cosines, self.inverse = cosines, inverse
        self.first, self.second = first, second
        self.open_u, self.open_v = at_u, at_v
        self.fluid = fluid.astype(float)
        self.free_u, self.free_v = np.zeros_like(self.open_u), np.zeros_like(self.open_v)
        self.free_u[1:-1] = self.fluid[1:] * self.fluid[:-1]
        self.free_v[:, 1:-1] = self.fluid[:, 1:] * self.fluid[:, :-1]

    @staticmethod
    @lru_cache(maxsize=4)
    def of(box: Box) -> "Projection":
        return Projection(box)

    def __call__(self, u: Float[ndarray, "batch x1 y"], v: Float[ndarray, "batch x y1"]) -> None:
        """Projects in place."""
        u *= self.open_u
        v *= self.open_v
        divergence = (np.diff(u, axis=1) + np.diff(v, axis=2)) * self.fluid
        divergence -= self.fluid * (divergence.mean(axis=(1, 2), keepdims=True) / self.fluid.mean())
        pressure = self.solve(divergence)
        u[:, 1:-1] -= np.diff(pressure, axis=1) * self.free_u[1:-1]
        v[:, :, 1:-1] -= np.diff(pressure, axis=2) * self.free_v[:, 1:-1]

    def solve(self, divergence: Float[ndarray, "batch x y"]) -> Float[ndarray, "batch x y"]:
        transformed = self.cosines @ divergence @ self.cosines.T
        pressure = self.cosines.T @ (self.inverse * transformed) @ self.cosines
        flat = pressure.reshape(len(pressure), -1)
        jumps = flat[:, self.first] - flat[:, self.second]
        return pressure - (jumps @ self.correction).reshape(pressure.shape)


def _open(x: Float[ndarray, " n"], y: Float[ndarray, " m"], box: Box) -> Float[ndarray, "n m"]:
    """How much of the velocity the obstacle lets through at faces: 0 inside, 1 beyond half a cell's diagonal."""
    distance = np.hypot(x[:, None] - box.obstacle[0], y - box.obstacle[1]) - box.obstacle_radius
    return np.clip(distance / CELL_RADIUS, 0, 1)
