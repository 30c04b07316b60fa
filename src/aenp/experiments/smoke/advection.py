"""Advection on a grid of unit cells, compiled.

Smoke is kept in cells [batch, x, y], velocities at faces: u[batch, x ± ½, y] and v[batch, x, y ± ½], walls included.
"""

from typing import no_type_check

import numba
import numpy as np

_compile = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
_inline = numba.njit(inline="always", fastmath=True, error_model="numpy")


@_compile
@no_type_check  # numba infers types
def advect_smoke(smoke, u, v, dt, inflow, out):
    """MacCormack: a step back, a step forward to find the error, half of which is corrected, within local bounds."""
    batch, size, _ = smoke.shape
    half = dt / 2
    back = np.empty((size, size), smoke.dtype)
    for b in range(batch):
        now = smoke[b]
        for i in range(size):
            for j in range(size):
                i0, s = _part(i, -half * (u[b, i, j] + u[b, i + 1, j]))
                j0, t = _part(j, -half * (v[b, i, j] + v[b, i, j + 1]))
                i0, i1, j0, j1 = _clamp(i0, size), _clamp(i0 + 1, size), _clamp(j0, size), _clamp(j0 + 1, size)
                back[i, j] = _mix(now[i0, j0], now[i0, j1], now[i1, j0], now[i1, j1], s, t)
        for i in range(size):
            for j in range(size):
                dx, dy = half * (u[b, i, j] + u[b, i + 1, j]), half * (v[b, i, j] + v[b, i, j + 1])
                i0, s = _part(i, dx)
                j0, t = _part(j, dy)
                i0, i1, j0, j1 = _clamp(i0, size), _clamp(i0 + 1, size), _clamp(j0, size), _clamp(j0 + 1, size)
                again = _mix(back[i0, j0], back[i0, j1], back[i1, j0], back[i1, j1], s, t)
                i0, s = _part(i, -dx)
                j0, t = _part(j, -dy)
                i0, i1, j0, j1 = _clamp(i0, size), _clamp(i0 + 1, size), _clamp(j0, size), _clamp(j0 + 1, size)
                a, c, d, e = now[i0, j0], now[i0, j1], now[i1, j0], now[i1, j1]
                value = back[i, j] + (now[i, j] - again) / 2
                value = min(max(value, min(min(a, c), min(d, e))), max(max(a, c), max(d, e)))
                out[b, i, j] = value + inflow[b, i, j]


@_compile
@no_type_check
def advect_velocity(u, v, dt, u_out, v_out):
    """Semi-Lagrangian: each face takes the velocity from where it was one step earlier."""
    batch, _, size = u.shape
    quarter = dt / 4
    for b in range(batch):
        for i in range(1, size):
            for j in range(size):
                across = v[b, i - 1, j] + v[b, i, j] + v[b, i - 1, j + 1] + v[b, i, j + 1]
                u_out[b, i, j] = _sample(u[b], i, j, -dt * u[b, i, j], -quarter * across)
        for i in range(size):
            for j in range(1, size):
                across = u[b, i, j - 1] + u[b, i, j] + u[b, i + 1, j - 1] + u[b, i + 1, j]
                v_out[b, i, j] = _sample(v[b], i, j, -quarter * across, -dt * v[b, i, j])


@_inline
@no_type_check
def _sample(values, i, j, dx, dy):
    """Bilinear interpolation at (i + dx, j + dy); beyond the array there are zeros."""
    rows, columns = values.shape
    i0, s = _part(i, dx)
    j0, t = _part(j, dy)
    if 0 <= i0 < rows - 1 and 0 <= j0 < columns - 1:
        return _mix(values[i0, j0], values[i0, j0 + 1], values[i0 + 1, j0], values[i0 + 1, j0 + 1], s, t)
    total = s * 0
    for di in range(2):
        for dj in range(2):
            if 0 <= i0 + di < rows and 0 <= j0 + dj < columns:
                total += (s if di else 1 - s) * (t if dj else 1 - t) * values[i0 + di, j0 + dj]
    return total


@_inline
@no_type_check
def _part(i, d):
    """i + d as an integer and the rest, in d's own precision."""
    whole = np.floor(d)
    return i + np.int64(whole), d - whole


@_inline
@no_type_check
def _clamp(i, size):
    return min(max(i, 0), size - 1)


@_inline
@no_type_check
def _mix(a, c, d, e, s, t):
    low, high = a + t * (c - a), d + t * (e - d)
    return low + s * (high - low)
