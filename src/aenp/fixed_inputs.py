"""FixedInputs: learned functions of absolute position, which a model sees nowhere else."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import local

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from aenp.checks import LIMIT, check_floating
from aenp.configured import Configured
from aenp.nn.coordinates import Box, Domain, box_of, frequencies, scaled, with_waves
from aenp.nn.mlp import MLP
from aenp.task import Task, each_task

Periods = Sequence[float | Sequence[float] | None]
"For each dimension None, the length of a cycle, or several, or () for none."
HARMONICS = 2


class Switch(local):
    """How often the calling thread has switched something off; other threads and copies are not affected."""

    def __init__(self) -> None:
        self.off = 0

    def __reduce__(self) -> tuple[type["Switch"], tuple[()]]:
        return Switch, ()


class FixedInputs(Configured, nn.Module):
    """t(x) = 1[x ∈ domain] · MLP(x scaled to the domain), in R^num (section 3.1 of the paper).

    Added to the channels of an equivariant network, t breaks its symmetry. In training, t is zeroed for a whole
    task at random, so that the network also learns to work without it; outside the domain t is exactly zero, and only
    the equivariant network is left.

    Args:
        dim_x: input dimension.
        num: number B of fixed inputs.
        domain: one `(lower, upper)` for each input dimension, usually the box of the training inputs
            (`FixedInputs.domain_of`). None in place of a bound, of a dimension's interval or of the whole domain
            means unbounded; an unbounded dimension enters the MLP in its own units.
        dropout: probability that t is zero for a whole task, in training.
        fourier: number K of Fourier coefficients: sin and cos of k·π/2·(scaled x), k = 1 … K, enter the MLP with x.
        learn_frequencies: whether the K frequencies are learned.
        taper: fraction of the domain's side over which t falls smoothly to zero inside each edge; 0 for a sharp edge.
        width: size of the MLP's two hidden layers.
        concatenate: the host takes t in as further channels, instead of adding a linear map of t to its own.
        periods: for each input dimension None, or the length of a cycle, or several, in the units of x: a year, say, or
            a year and a day. t repeats itself along that dimension, which is unbounded: it enters the MLP as sines and
            cosines of one and two cycles, and nothing else of it does. With () t does not depend on the dimension.
        positions: whether x itself enters the MLP beside its Fourier coefficients, as it does by default.
        jitter: standard deviation, in units of x, by which each point is moved at random before t is taken there, in
            training. So t is smooth on that scale: it cannot tell one station from the next and learn each by heart. A
            dimension with periods is left as it is.
        strength: factor of t, less than 1 where t is to be trusted only in part.

    Example:
        >>> import torch
        >>> import aenp
        >>> t = aenp.FixedInputs(dim_x=1, num=3, domain=[(0, 1)]).eval()
        >>> values = t(torch.tensor([[[0.5], [2.0]]]))
        >>> values.shape, bool((values[0, 0] != 0).any()), bool((values[0, 1] == 0).all())  # 2.0 lies outside
        (torch.Size([1, 2, 3]), True, True)
    """

    mutable = ("domain", "dropout", "taper", "strength")

    def __init__(
        self,
        dim_x: int,
        num: int = 64,
        domain: Domain | None = None,
        dropout: float = 0.5,
        fourier: int = 0,
        learn_frequencies: bool = True,
        taper: float = 0.0,
        width: int = 64,
        concatenate: bool = False,
        periods: Periods | None = None,
        positions: bool = True,
        jitter: float = 0.0,
        strength: float = 1.0,
    ) -> None:
        super().__init__()
        if dim_x < 1:
            raise ValueError(f"dim_x must be at least 1; got {dim_x}")
        if fourier < 0:
            raise ValueError(f"fourier, the number of coefficients, must not be negative; got {fourier}")
        if not positions and not fourier:
            raise ValueError("without positions the MLP sees x by its Fourier coefficients; give fourier, at least 1")
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout is a probability, between 0 and 1; got {dropout}")
        if not 0 <= taper <= 0.5:
            raise ValueError(f"taper is a fraction of the domain's side, between 0 and 0.5; got {taper}")
        if not 0 <= jitter < math.inf:
            raise ValueError(f"jitter is a distance in units of x, 0 or more; got {jitter}")
        if not 0 <= strength <= 1:
            raise ValueError(f"strength is a factor between 0 and 1; got {strength}")
        if num < 1 or width < 1:
            raise ValueError(f"num, the number of fixed inputs, and width must be at least 1; got {num} and {width}")
        self.dim_x, self.num, self.dropout, self.taper = dim_x, num, dropout, taper
        self.concatenate, self.positions, self.jitter, self.strength = concatenate, positions, jitter, strength
        self.periods = _cycles(periods, dim_x)
        self.domain = domain
        if taper and any(math.isfinite(lower) != math.isfinite(upper) for lower, upper in self.domain):
            raise ValueError("taper is a fraction of the domain's side, which needs both bounds")
        self.lines = [d for d, cycles in enumerate(self.periods) if cycles is None]
        if fourier:
            self.frequencies = nn.Parameter(frequencies(len(self.lines), fourier), requires_grad=learn_frequencies)
        self.fourier = fourier
        waves = 2 * HARMONICS * sum(len(cycles or ()) for cycles in self.periods)
        self.mlp = MLP(len(self.lines) * (positions + 2 * fourier) + waves, num, width=width)
        self.switch = Switch()

    @staticmethod
    def domain_of(tasks: Task | Iterable[Task]) -> list[tuple[float, float]]:
        """The smallest box that holds every context and target point of `tasks`."""
        boxes = []
        for task in each_task(tasks):
            for x, mask in ((task.xc, task.context_mask), (task.xt, task.target_mask)):
                points = x.flatten(0, 1) if mask is None else x[mask]
                if len(points):
                    boxes.append(torch.stack([points.amin(0), points.amax(0)]))
        if not boxes:
            raise ValueError("domain_of needs at least one task with an unmasked point; got none")
        lower, upper = torch.stack(boxes).amin(0)[0], torch.stack(boxes).amax(0)[1]
        return list(zip(lower.tolist(), upper.tolist(), strict=True))

    @torch.no_grad()
    def start_at_zero(self) -> None:
        """Makes t zero everywhere until it is trained, so that at first the host is its equivariant part."""
        for parameter in self.mlp[-1].parameters():
            parameter.zero_()

    @property
    def domain(self) -> Box:
        """The box in which t may differ from zero, with infinities for what is unbounded; saved with the model."""
        return self._domain

    @domain.setter
    def domain(self, domain: Domain | None) -> None:
        box = box_of(domain, self.dim_x)
        for (lower, upper), cycles in zip(box, self.periods, strict=True):
            if cycles is not None and (math.isfinite(lower) or math.isfinite(upper)):
                raise ValueError(f"a dimension with periods is unbounded: its domain must be None; got {lower, upper}")
        self._domain = box

    @property
    def active(self) -> bool:
        """Whether t is on for the calling thread."""
        return self.switch.off == 0

    @contextmanager
    def switched(self, on: bool) -> Iterator[None]:
        """Within this context t is on or off for the calling thread, whatever it was before."""
        before, self.switch.off = self.switch.off, int(not on)
        try:
            yield
        finally:
            self.switch.off = before

    def draw_keep(self, batch: int, device: torch.device) -> Float[Tensor, " batch"] | None:
        """One draw of the dropout: for each task, whether t is kept (1) or zero (0); None if all are kept."""
        if not self.training or self.dropout == 0:
            return None
        return (torch.rand(batch, device=device) >= self.dropout).to(self.mlp.dtype)

    def contains(self, x: Float[Tensor, "*points dim_x"]) -> Bool[Tensor, "*points"]:
        """Whether each point lies in the domain, edges included."""
        inside = (x.abs() < LIMIT).all(dim=-1)
        for d, (lower, upper) in enumerate(self.domain):
            inside = inside & (x[..., d] >= lower) & (x[..., d] <= upper)
        return inside

    def forward(
        self, x: Float[Tensor, "batch *points dim_x"], keep: Float[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch *points num"]:
        """t at the points `x`, given in the user's coordinates.

        Args:
            x: points, `(batch, ..., dim_x)`.
            keep: a draw of the dropout, `(batch,)`, for a host that needs t more than once in a forward pass: t is
                dropped for a task everywhere or nowhere. By default a new draw.
        """
        check_floating(x=x)
        if x.ndim < 2 or x.shape[-1] != self.dim_x:
            raise ValueError(f"x must have shape (batch, ..., {self.dim_x}); got {tuple(x.shape)}")
        keep = self.draw_keep(len(x), x.device) if keep is None else keep
        if not self.active:
            return torch.zeros(*x.shape[:-1], self.num, device=x.device, dtype=self.mlp.dtype)
        inside = self.contains(x).unsqueeze(-1)
        if self.training and self.jitter:
            moved = x.new_tensor([cycles is None for cycles in self.periods])
            x = x + self.jitter * torch.randn_like(x) * moved
        z = torch.where(inside, scaled(x, self.domain), 0.0).to(self.mlp.dtype)
        t = torch.where(inside, self.strength * self.mlp(self._features(x, z)) * self._edge(z), 0.0)
        return t if keep is None else t * keep.view(-1, *[1] * (t.ndim - 1))

    def _features(self, x: Float[Tensor, "*points dim_x"], z: Float[Tensor, "*points dim_x"]) -> Tensor:
        """What the MLP sees of a place: z with its waves, and the phases of its cycles."""
        lines = z[..., self.lines]
        seen = with_waves(lines, self.frequencies) if self.fourier else lines
        features = [seen if self.positions else seen[..., len(self.lines) :]]
        for d, cycles in enumerate(self.periods):
            for period in cycles or ():
                # The phase in the coordinates' own dtype: far away, float32 would lose it.
                phase = (x[..., d : d + 1] / period).frac().nan_to_num().to(z.dtype)
                angles = 2 * math.pi * phase * torch.arange(1, HARMONICS + 1, device=x.device)
                features += [angles.sin(), angles.cos()]
        return torch.cat(features, dim=-1)

    def _edge(self, z: Tensor) -> Tensor | float:
        """1 in the interior, falling smoothly to 0 over the taper inside each bounded edge."""
        if self.taper == 0:
            return 1.0
        weight = torch.ones_like(z[..., :1])
        for d, (lower, upper) in enumerate(self.domain):
            if math.isfinite(lower) and math.isfinite(upper):
                depth = ((1 - z[..., d : d + 1].abs()) / (2 * self.taper)).clamp(0, 1)
                weight = weight * depth.square() * (3 - 2 * depth)
        return weight


def _cycles(periods: Periods | None, dim_x: int) -> list[list[float] | None]:
    """The lengths of each dimension's cycles, checked; None where it has a position and not a phase."""
    if periods is None:
        return [None] * dim_x
    cycles = [
        None if each is None else [float(each)] if isinstance(each, int | float) else list(each) for each in periods
    ]
    if len(cycles) != dim_x or not all(0 < period < math.inf for each in cycles for period in each or ()):
        raise ValueError(f"periods needs None or positive lengths for each of {dim_x} dimensions; got {periods}")
    return cycles


class Injection(nn.Module):
    """How a host with `channels` channels takes t in: h + W t, or h + MLP([h, t]) − MLP([h, 0]) where it concatenates.

    Either way, where t is zero the host is exactly the equivariant network.
    """

    def __init__(self, fixed_inputs: FixedInputs, channels: int) -> None:
        super().__init__()
        self.concatenate = fixed_inputs.concatenate
        if self.concatenate:
            first, last = nn.Linear(channels + fixed_inputs.num, channels), nn.Linear(channels, channels, bias=False)
            self.mix: nn.Module = nn.Sequential(first, nn.ReLU(), last)
        else:
            self.mix = nn.Linear(fixed_inputs.num, channels, bias=False)

    def forward(self, h: Float[Tensor, "*points channels"], t: Float[Tensor, "*points num"]) -> Tensor:
        """The host's channels with t added."""
        if not self.concatenate:
            return h + self.mix(t)
        return h + self.mix(torch.cat([h, t], dim=-1)) - self.mix(torch.cat([h, torch.zeros_like(t)], dim=-1))
