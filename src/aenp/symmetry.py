"""Groups: how translations, rigid motions and finite point groups act on inputs and tasks."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from typing import TYPE_CHECKING, overload

import torch
from jaxtyping import Float
from torch import Tensor

from aenp.checks import check_floating, vector

if TYPE_CHECKING:
    from aenp.task import Task


@dataclass(frozen=True, eq=False)
class Motion:
    """A rigid motion g·x = Q x + b of the input space; on a task it moves the inputs and leaves the outputs.

    Args:
        matrix: the orthogonal matrix Q, `(dim, dim)`.
        offset: the vector b, `(dim,)`.

    Example:
        >>> import torch
        >>> from aenp.symmetry import Motion
        >>> turn = Motion(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.zeros(2))  # a quarter turn
        >>> turn(torch.tensor([[2.0, 0.0]])).tolist(), (turn @ turn.inverse()).matrix.tolist()
        ([[0.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]])
        >>> turn.about([1.0, 1.0])(torch.tensor([2.0, 1.0])).tolist()
        [1.0, 2.0]
    """

    matrix: Float[Tensor, "dim dim"]
    offset: Float[Tensor, " dim"]

    def __post_init__(self) -> None:
        check_floating(matrix=self.matrix, offset=self.offset)
        dim = self.offset.numel()
        if self.offset.ndim != 1 or self.matrix.shape != (dim, dim):
            raise ValueError(
                "a motion needs a matrix (dim, dim) and an offset (dim,); "
                f"got shapes {tuple(self.matrix.shape)} and {tuple(self.offset.shape)}"
            )
        if self.matrix.is_meta:  # part of a model that is built only for its shapes
            return
        off = self.matrix @ self.matrix.T - torch.eye(dim).to(self.matrix)
        if not bool((off.abs() < 1e-5).all() & self.offset.isfinite().all()):
            raise ValueError(
                f"a motion needs an orthogonal matrix and a finite offset; got {self.matrix} and {self.offset}"
            )

    @overload
    def __call__(self, target: "Task") -> "Task": ...
    @overload
    def __call__(self, target: Tensor) -> Tensor: ...
    def __call__(self, target: "Task | Tensor") -> "Task | Tensor":
        """g·x for points `(..., dim)`, or g·ξ for a task."""
        if hasattr(target, "map_inputs"):
            return target.map_inputs(self)
        dim = self.offset.shape[0]
        check_floating(points=target)
        if target.shape[-1:] != (dim,):
            raise ValueError(f"a motion of {dim} dimensions cannot act on points of shape {tuple(target.shape)}")
        return target @ self.matrix.to(target).T + self.offset.to(target)

    def __matmul__(self, other: "Motion") -> "Motion":
        """The motion that applies `other` first, then this one."""
        return Motion(self.matrix @ other.matrix, self.matrix @ other.offset + self.offset)

    def inverse(self) -> "Motion":
        return Motion(self.matrix.T, -(self.matrix.T @ self.offset))

    def about(self, centre: Sequence[float] | Tensor) -> "Motion":
        """The same motion with `centre` in the role of the origin: x ↦ g·(x − centre) + centre."""
        point = vector("centre", centre, len(self.offset)).to(self.offset)
        return Motion(self.matrix, self.offset + point - self.matrix @ point)


class Group:
    """A group of rigid motions of R^dim. Its elements are `Motion`s in float64.

    Example:
        >>> import torch
        >>> from aenp.symmetry import Euclidean
        >>> one = Euclidean(2).sample(generator=torch.Generator().manual_seed(0))
        >>> torch.allclose((one @ one.inverse()).matrix, Euclidean(2).identity().matrix)
        True
    """

    def __init__(self, dim: int) -> None:
        if dim < 1:
            raise ValueError(f"a group needs dim of at least 1; got {dim}")
        self.dim = dim

    def identity(self) -> Motion:
        return Motion(torch.eye(self.dim, dtype=torch.float64), torch.zeros(self.dim, dtype=torch.float64))

    def sample(self, scale: float = 1.0, generator: torch.Generator | None = None) -> Motion:
        """A random element; translations are normal with standard deviation `scale`."""
        return Motion(self._sample_matrix(generator), self._sample_offset(scale, generator))

    def exact_on_lattice(self, element: Motion) -> bool:
        """Whether a square lattice that moves along with the data represents `element` exactly.

        Every translation is, because the lattice is anchored on the context; a rotation or reflection is if it maps the
        lattice's axes onto each other, that is, if its matrix is a signed permutation.
        """
        rounded = element.matrix.round()
        return bool((element.matrix - rounded).abs().max() < 1e-9) and bool((rounded.abs().sum(0) == 1).all())

    def _sample_matrix(self, generator: torch.Generator | None) -> Tensor:
        return torch.eye(self.dim, dtype=torch.float64)

    def _sample_offset(self, scale: float, generator: torch.Generator | None) -> Tensor:
        return scale * torch.randn(self.dim, dtype=torch.float64, generator=generator)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dim})"


class Translation(Group):
    """T(dim): x ↦ x + b.

    Example:
        >>> import torch
        >>> from aenp.symmetry import Translation
        >>> Translation(2).element([1.0, 2.0])(torch.zeros(1, 2)).tolist()
        [[1.0, 2.0]]
    """

    def element(self, offset: float | Sequence[float] | Tensor) -> Motion:
        """The translation by `offset`: one number, or one for each dimension."""
        shift = vector("a translation", offset, self.dim).double().clone()
        return Motion(torch.eye(self.dim, dtype=torch.float64), shift)


class Euclidean(Group):
    """E(dim): all rotations, reflections and translations.

    Example:
        >>> import torch
        >>> from aenp.symmetry import Euclidean
        >>> motion = Euclidean(3).sample(scale=10, generator=torch.Generator().manual_seed(0))
        >>> torch.allclose(motion.matrix @ motion.matrix.T, torch.eye(3).double())
        True
    """

    def _sample_matrix(self, generator: torch.Generator | None) -> Tensor:
        """Uniform over the orthogonal matrices: QR of a normal matrix, with the signs of R's diagonal moved into Q."""
        q, r = torch.linalg.qr(torch.randn(self.dim, self.dim, dtype=torch.float64, generator=generator))
        return q * r.diagonal().sign()


class PointGroup(Group, ABC):
    """A finite group of rotations, and perhaps reflections, of the plane about the origin.

    Example:
        >>> from aenp.symmetry import C, D
        >>> [(len(group.elements()), len(group.lattice_elements())) for group in (C(8), D(8))]
        [(8, 4), (16, 8)]
    """

    def __init__(self, n: int) -> None:
        super().__init__(dim=2)
        if n < 1:
            raise ValueError(f"{type(self).__name__}(n) needs n of at least 1; got {n}")
        self.n = n

    @abstractmethod
    def elements(self) -> list[Motion]:
        """Every element."""

    def lattice_elements(self) -> list[Motion]:
        """The elements that a square lattice represents exactly."""
        return [element for element in self.elements() if self.exact_on_lattice(element)]

    def _rotations(self) -> list[Motion]:
        angles = [2 * pi * k / self.n for k in range(self.n)]
        zero = torch.zeros(2, dtype=torch.float64)
        rows = ([[cos(a), -sin(a)], [sin(a), cos(a)]] for a in angles)
        # Rounded, so that quarter turns are exact.
        return [Motion(torch.tensor(matrix, dtype=torch.float64).round(decimals=15), zero) for matrix in rows]

    def _sample_matrix(self, generator: torch.Generator | None) -> Tensor:
        elements = self.elements()
        return elements[int(torch.randint(len(elements), (), generator=generator))].matrix

    def _sample_offset(self, scale: float, generator: torch.Generator | None) -> Tensor:
        return torch.zeros(2, dtype=torch.float64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n})"


class C(PointGroup):
    """The cyclic group C(n): rotations of the plane by multiples of 360°/n.

    Example:
        >>> import torch
        >>> from aenp.symmetry import C
        >>> C(4).elements()[1](torch.tensor([1.0, 0.0])).tolist()
        [0.0, 1.0]
    """

    def elements(self) -> list[Motion]:
        return self._rotations()


class D(PointGroup):
    """The dihedral group D(n): C(n), and each of its rotations after the reflection (x, y) ↦ (x, −y).

    Example:
        >>> import torch
        >>> from aenp.symmetry import D
        >>> D(4).elements()[4](torch.tensor([0.0, 1.0])).tolist()
        [0.0, -1.0]
    """

    def elements(self) -> list[Motion]:
        zero = torch.zeros(2, dtype=torch.float64)
        mirror = Motion(torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64)), zero)
        return self._rotations() + [rotation @ mirror for rotation in self._rotations()]
