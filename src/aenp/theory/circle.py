"""Functions on the circle ℝ/ℤ, given by their values at N equally spaced places.

N is odd: each function is then one trigonometric polynomial of degree (N − 1) / 2 or less, the mean over the places is
its integral, and a rotation by any angle preserves inner products.
"""

import math

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def places(points: int) -> Float[ndarray, " points"]:
    """The places 0, 1/N, …, (N − 1)/N.

    Example:
        >>> from aenp.theory import places
        >>> places(5).tolist()
        [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    if points < 1 or points % 2 == 0:
        raise ValueError(f"a grid of the circle needs an odd number of points; got {points}")
    return np.arange(points) / points


def basis(points: int) -> Float[ndarray, "points points"]:
    """The orthonormal functions 1, √2 cos 2πx, √2 sin 2πx, √2 cos 4πx, …, one in each row.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import basis
        >>> np.allclose(basis(5) @ basis(5).T / 5, np.eye(5))
        True
    """
    angles = 2 * np.pi * np.arange(1, points // 2 + 1)[:, None] * places(points)
    waves = math.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([np.ones((1, points)), waves.reshape(-1, points)])


def inner(f: Float[ndarray, "*#many points"], g: Float[ndarray, "*#many points"]) -> Float[ndarray, "..."]:
    """⟨f, g⟩ = ∫ f g, of each pair that broadcasting makes.

    Example:
        >>> from aenp.theory import basis, inner
        >>> round(float(inner(basis(5)[1], basis(5)[2])), 12) + 0.0
        0.0
    """
    return np.asarray((f * g).mean(-1))


def norm(f: Float[ndarray, "*many points"]) -> Float[ndarray, "*many"]:
    """√⟨f, f⟩.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import norm
        >>> norm(2 * np.ones(5)).item()
        2.0
    """
    return np.asarray(np.sqrt(inner(f, f)))


def rotate(f: Float[ndarray, "*many points"], angle: float) -> Float[ndarray, "*many points"]:
    """(g f)(x) = f(x − angle), also for angles between the places of the grid.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import rotate
        >>> np.allclose(rotate(np.array([0.0, 1.0, 0.0]), 1 / 3), [0, 0, 1])
        True
    """
    waves = np.fft.rfft(f)
    turn = np.exp(-2j * np.pi * angle * np.arange(waves.shape[-1]))
    return np.fft.irfft(waves * turn, n=f.shape[-1])


def project(f: Float[ndarray, "*many points"], n: int) -> Float[ndarray, "*many points"]:
    """P_n f, the part of f in the span of the first n functions of the basis.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import project
        >>> np.allclose(project(np.array([1.0, 2.0, 6.0]), n=1), 3)
        True
    """
    first = basis(f.shape[-1])[:n]
    return (f @ first.T / f.shape[-1]) @ first


def from_fourier(matrix: Float[ndarray, "points points"]) -> Float[ndarray, "points points"]:
    """The linear operator with ⟨e_i, T e_j⟩ = matrix[i, j], as a matrix that acts on values at the places.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import from_fourier
        >>> np.allclose(from_fourier(np.eye(5)), np.eye(5))
        True
    """
    functions = basis(len(matrix))
    return functions.T @ matrix @ functions / len(matrix)
