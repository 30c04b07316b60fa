"""A fuzz test: models and public functions return the right finite numbers for any input, or say what is wrong.

Each test runs this file as a program, as users would run their own: without the checks of shapes, with warnings as
errors, and with limited memory, so that a huge array ends the program and not the machine.
"""

import copy
import os
import random
import re
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

import aenp
from aenp import FixedInputs, Normal, NormalMixture, Task
from aenp.evaluation.metrics import covered, crps, equivariance_error
from aenp.process import NeuralProcess
from aenp.symmetry import C, D, Euclidean, Motion, Translation
from catalogue import CASES, build

TESTS = Path(__file__).parent.parent
FAMILIES = sorted({name.split("-")[0] for name, _ in CASES})
INPUTS, FUNCTION_INPUTS = 300, 1200
"How many inputs each family gets, and the public functions."
MEMORY = 5 * 2**30
"Bytes that a program may take beyond those it starts with."
FLOATS = (torch.float32, torch.float64)
DTYPES = (torch.int64, torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.complex64, *FLOATS)
WILD = (torch.nan, torch.inf, -torch.inf, 1e30, -1e30, 3e38, 1e16, 1e-30)
LARGE = 100.0
"Beyond this round-off decides what an attention looks at: numbers are finite, but need not agree."

Arguments = dict[str, Any]
Values = list[Tensor]


class Case(NamedTuple):
    """One input, and the expected outcome."""

    call: Callable[[], Values]
    clean: Callable[[], Values | None]
    "The same numbers computed plainly, if possible; called only if `call` returns numbers."
    words: str
    "Words of which an error must contain one; empty if there must be no error."
    tolerance: float = 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("subject", [*FAMILIES, "functions"])
def test_random_inputs_give_the_right_numbers_or_say_what_is_wrong(subject: str) -> None:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    inputs = FUNCTION_INPUTS if subject == "functions" else INPUTS
    command = [sys.executable, "-W", "error", __file__, subject, str(inputs)]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stdout + result.stderr


def main(subject: str, inputs: int) -> None:
    """Tries the inputs, prints the outcomes, and fails if any of them is wrong."""
    torch.set_num_threads(1)
    cases = [key for key in CASES if key[0].split("-")[0] == subject]
    models = {key: build(*key) for key in cases}
    limit_memory()
    outcomes, faults = Counter[str](), list[str]()
    for number in range(inputs):
        rng = random.Random(f"{subject} {number}")
        torch.manual_seed(number)
        key = cases[number % len(cases)] if cases else None
        label, case = function_input(rng) if key is None else model_input(models[key], rng)
        try:
            outcomes[outcome(case)] += 1
        except AssertionError as fault:
            faults.append(f"input {number}, {key or ''} {label}: {fault}")
    print(*faults[:50], f"{len(faults)} faults", dict(outcomes), sep="\n")
    assert not faults
    assert min(outcomes["numbers"], outcomes["error"]) > inputs / 5


def limit_memory() -> None:
    """Limits the memory on Linux: an array that is too large is then an error, which counts as a fault."""
    if sys.platform != "linux":
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = used + MEMORY if hard == resource.RLIM_INFINITY else min(used + MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def outcome(case: Case) -> str:
    """`numbers` if a call returns the right ones, `error` if it raises a clear one; otherwise an AssertionError."""
    try:
        values = case.call()
    except ValueError as error:
        if case.words and re.search(case.words, str(error)):
            return "error"
        raise AssertionError(f"an error that names none of {case.words!r}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    assert all(bool(value.isfinite().all()) for value in values), "numbers that are not finite"
    try:
        expected = case.clean()
    except Exception as error:
        raise AssertionError(f"numbers where there should be an error: {error}") from error
    if expected is not None:
        near = {"rtol": case.tolerance, "atol": case.tolerance, "check_dtype": False}
        torch.testing.assert_close(values, expected, **near)
    return "numbers"


# Twists: each changes some of the arguments in place, and returns words of which an error must contain one, or none if
# there must be no error.


def layout(raw: Arguments, rng: random.Random) -> str:
    """The same values in another memory layout, or one task's values for all."""
    name = some_tensor(raw, rng)
    value = raw[name]
    raw[name] = rng.choice(
        [
            lambda: value.transpose(0, -1).contiguous().transpose(0, -1),
            lambda: torch.stack([value, torch.zeros_like(value)], dim=-1)[..., 0],
            lambda: value[:1].expand(value.shape),
            lambda: torch.cat([value, value])[len(value) :],
        ]
    )()
    return ""


def dtype(raw: Arguments, rng: random.Random) -> str:
    name = some_tensor(raw, rng)
    raw[name] = raw[name].to(rng.choice(DTYPES))
    return name


def shape(raw: Arguments, rng: random.Random) -> str:
    name = some_tensor(raw, rng)
    value = raw[name]
    raw[name] = rng.choice(
        [
            lambda: value[0],
            lambda: value.flatten(),
            lambda: value.sum(),
            lambda: value.unsqueeze(0),
            lambda: value.transpose(0, 1),
            lambda: value[:0],
            lambda: value[:, :0],
            lambda: value[..., :0],
            lambda: torch.cat([value, value], dim=0),
            lambda: torch.cat([value, value], dim=1),
            lambda: torch.cat([value, value], dim=-1),
        ]
    )()
    return f"{name}|dim_x|dim_y|batch"


def kind(raw: Arguments, rng: random.Random) -> str:
    """Not a tensor at all."""
    name = some_tensor(raw, rng)
    raw[name] = rng.choice([None, 1.0, "x", [[[0.0]]], raw[name].numpy(force=True)])
    return f"{name}|three tensors"


def wild(raw: Arguments, rng: random.Random) -> str:
    """A value that is not finite or barely so, in one place or everywhere."""
    name = some_tensor(raw, rng)
    value = raw[name] = raw[name].clone()
    if value.is_floating_point() and value.numel():
        value.view(-1)[slice(None) if rng.random() < 0.2 else rng.randrange(value.numel())] = rng.choice(WILD)
    return "xc|xt|x |grid|masked" if name.startswith("x") else f"{name}|masked"


def missing(raw: Arguments, rng: random.Random) -> str:
    """Outputs without a value, some or all."""
    name = rng.choice(["yc", "yt"])
    raw[name] = raw[name].masked_fill(torch.rand(raw[name].shape) < rng.choice([0.2, 0.9, 1.0]), torch.nan)
    return "masked" if name == "yt" else ""


def stretch(raw: Arguments, rng: random.Random) -> str:
    factor = rng.choice([1e-30, 1e-6, 1e8, 1e15, 1e30])
    for name in ["xc", "xt"] if factor < 1 else rng.choice([["xc"], ["xt"], ["xc", "xt"]]):
        raw[name] = raw[name] * factor
    return "xc|xt|grid" if factor > 1 else ""


def far(raw: Arguments, rng: random.Random) -> str:
    offset = rng.choice([1e3, 1e6, 1e9, 1e15, 1e30])
    raw["xc"], raw["xt"] = raw["xc"] + offset, raw["xt"] + offset
    return "xc|xt|grid" if offset > 1e3 else ""


def mask(raw: Arguments, rng: random.Random) -> str:
    """Points that do not count, perhaps all of them, or an invalid mask."""
    name, x = rng.choice([("context_mask", raw["xc"]), ("target_mask", raw["xt"])])
    some = torch.rand(x.shape[:2]) < rng.choice([0.0, 0.5, 0.9])
    raw[name] = rng.choice([some] * 7 + [some[:, :0], some.float(), some.T])
    return f"{name}|masked"


def duplicates(raw: Arguments, rng: random.Random) -> str:
    """All points at one place."""
    if raw["xc"].dtype == raw["xt"].dtype:
        place = raw["xt"][:, :1].clone()
        raw["xt"], raw["xc"] = place.expand(raw["xt"].shape), place.expand(raw["xc"].shape)
    return ""


def no_context(raw: Arguments, rng: random.Random) -> str:
    raw |= {"xc": raw["xc"][:, :0], "yc": raw["yc"][:, :0], "context_mask": None}
    return ""


def gradients(raw: Arguments, rng: random.Random) -> str:
    raw |= {name: raw[name].detach().clone().requires_grad_() for name in ("xc", "yc", "xt")}
    return ""


ANY = (layout, dtype, shape, kind, wild)
OF_TASKS = (*ANY, layout, missing, stretch, far, mask, duplicates, no_context, gradients)


def some_tensor(raw: Arguments, rng: random.Random) -> str:
    return rng.choice([name for name, value in raw.items() if isinstance(value, Tensor) and "mask" not in name])


def twisted(raw: Arguments, twists: Sequence[Callable[[Arguments, random.Random], str]], rng: random.Random) -> str:
    """Several twists in a row, as long as the next one can be applied; returns the words of an error."""
    words = []
    for twist in rng.sample(twists, rng.randint(0, 3)):
        try:
            words.append(twist(raw, rng))
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            break
    return "|".join(filter(None, words))


def task_arguments(dim_x: int, rng: random.Random) -> Arguments:
    batch, context, target = rng.randint(1, 3), rng.choice([0, 1, 2, 5]), rng.randint(1, 4)
    precision = rng.choice(FLOATS)
    return {
        "xc": torch.rand(batch, context, dim_x, dtype=precision),
        "yc": torch.randn(batch, context, 2),
        "xt": torch.rand(batch, target, dim_x, dtype=precision),
        "yt": rng.choice([None, torch.randn(batch, target, 2)]),
        "context_mask": None,
        "target_mask": None,
    }


def cleaned(raw: Arguments) -> list[Arguments]:
    """The tasks one by one, with only the points that count, and their values in fresh memory."""
    values = {name: raw[name].detach() for name in ("xc", "yc", "xt", "yt") if raw[name] is not None}
    kept = {"c": counted(raw["yc"], raw["context_mask"]), "t": targets(raw)}
    return [
        {name: as_clean(name, value[i, kept[name[1]][i]]).unsqueeze(0) for name, value in values.items()}
        for i in range(len(values["xc"]))
    ]


def counted(y: Tensor, mask: Tensor | None) -> Tensor:
    seen = ~y.isnan().any(dim=-1)
    return seen if mask is None else seen & mask


def targets(raw: Arguments) -> Tensor:
    """Which targets count; those without an output to be compared with all do, unless masked."""
    return counted(torch.zeros_like(raw["xt"]) if raw["yt"] is None else raw["yt"], raw["target_mask"])


def as_clean(name: str, value: Tensor) -> Tensor:
    return value.clone() if name.startswith("x") else value.float()


def is_large(raw: Arguments) -> bool:
    values = (raw[name].detach().double().nan_to_num(0.0, 0.0, 0.0) for name in ("xc", "yc", "xt"))
    return any(bool((value.abs() > LARGE).any()) for value in values)


# What a model computes: numbers at the targets that count, one task after the other.


def called(model: NeuralProcess, raw: Arguments) -> Values:
    return moments(model(Task(**raw)), raw)


def called_with_tensors(model: NeuralProcess, raw: Arguments) -> Values:
    raw |= {"yt": None, "context_mask": None, "target_mask": None}
    return moments(model(raw["xc"], raw["yc"], raw["xt"]), raw)


def predicted(model: NeuralProcess, raw: Arguments) -> Values:
    return moments(aenp.predict(model, Task(**raw), chunk=2), raw)


def scored(model: NeuralProcess, raw: Arguments) -> Values:
    return [aenp.loglik(model, Task(**raw))]


def sampled(model: NeuralProcess, raw: Arguments) -> Values:
    return [aenp.ar_sample(model, Task(**raw), 2)[:, targets(raw)]]


def moments(prediction: Distribution, raw: Arguments) -> Values:
    both = torch.stack([prediction.mean, prediction.stddev])
    assert both.isfinite().all(), "not finite at some target, masked or not"
    return [both[:, targets(raw)]]


STATES = (*[""] * 7, "autocast", "autocast", "half", "bfloat16", "double")


def model_input(model: NeuralProcess, rng: random.Random) -> tuple[str, Case]:
    """A distorted task for a model in some state."""
    raw = task_arguments(model.dim_x, rng)
    words = [twisted(raw, OF_TASKS, rng)]
    what, state = rng.choice([called, called, called_with_tensors, predicted, scored, sampled]), rng.choice(STATES)
    words += ["weights"] * (state in ("half", "bfloat16")) + ["yt"] * (what is scored)

    def call() -> Values:
        changed = getattr(copy.deepcopy(model), state)() if state in ("half", "bfloat16", "double") else model
        inputs = [value for value in raw.values() if isinstance(value, Tensor) and value.requires_grad]
        with torch.set_grad_enabled(bool(inputs)), mixed_precision(state == "autocast"):
            values = what(changed, raw)
        if values[0].requires_grad and not is_large(raw):
            wanted = [*inputs, *changed.parameters()]
            found = torch.autograd.grad(values[0].sum(), wanted, allow_unused=True)
            assert all(bool(each.isfinite().all()) for each in found if each is not None), "gradients are not finite"
        return [value.detach() for value in values]

    def clean() -> Values | None:
        if what is sampled or is_large(raw):
            return None
        rows = [row for row in cleaned(raw) if row["xt"].shape[1]]
        with torch.no_grad():
            apart = [what(model, {"yt": None, "context_mask": None, "target_mask": None, **row})[0] for row in rows]
        return [torch.cat(apart, dim=-2 if apart[0].ndim > 1 else 0)] if apart else None

    tolerance = 0.3 if state == "autocast" else 1e-3
    return f"{what.__name__} {state}", Case(call, clean, "|".join(filter(None, words)), tolerance)


def mixed_precision(on: bool) -> AbstractContextManager[object]:
    return torch.autocast("cpu", torch.bfloat16) if on else nullcontext()


# Inputs of the public functions, some of them distorted.


def none() -> None:
    """Nothing to compare with."""


def a_task(rng: random.Random) -> Case:
    raw = task_arguments(rng.randint(1, 4), rng)
    words = twisted(raw, OF_TASKS, rng)
    return Case(lambda: points_of(Task(**raw)), lambda: joined([raw]), words)


def points_of(task: Task) -> Values:
    """The values of a task at the points that count, one task after the other."""
    context = counted(task.yc, task.context_mask)
    target = targets(vars(task))
    values = [task.xc[context], task.yc[context].float(), task.xt[target]]
    return values if task.yt is None else [*values, task.yt[target].float()]


def joined(raws: Sequence[Arguments]) -> Values:
    """The same from the arguments of tasks."""
    rows = [row for raw in raws for row in cleaned(raw)]
    return [torch.cat([row[name][0] for row in rows]) for name in rows[0]]


def stacked(rng: random.Random) -> Case:
    dims = [rng.choice([2, 2, 2, 3]) for _ in range(rng.randint(0, 3))]
    raws = [task_arguments(dim_x, rng) for dim_x in dims]
    words = [twisted(raw, OF_TASKS, rng) for raw in raws if rng.random() < 0.3]
    extra = rng.choice([[]] * 9 + [[None]])
    return Case(
        lambda: points_of(Task.stack([*(Task(**raw) for raw in raws), *extra])),
        lambda: joined(raws),
        "|".join(["dim_x", "yt", "task", *filter(None, words)]),
    )


def shifted(rng: random.Random) -> Case:
    raw = task_arguments(2, rng)
    offset = an_offset(rng)

    def clean() -> Values:
        moved = torch.as_tensor(offset).to(raw["xc"])
        return joined([{**raw, "xc": raw["xc"] + moved, "xt": raw["xt"] + moved}])

    return Case(lambda: points_of(Task(**raw).shift(offset)), clean, "a shift|xc|xt")


def an_offset(rng: random.Random) -> Any:
    """A vector in the plane, or an invalid one."""
    good = [1.5, -2, [0.5, 1.0], (3.0, 4.0), torch.tensor(2), torch.tensor([1.0, 2.0]), torch.ones(1).expand(2)]
    size = [torch.ones(3), torch.ones(2, 2), torch.ones(1, 2), torch.ones(0), [1.0, [2.0]], [1.0, 2.0, 3.0]]
    other = [torch.nan, torch.inf, [1e30, 0.0], "x", None, 1j, torch.tensor([1j, 0.0]), {}]
    return rng.choice([*good, *good, *size, *other])


def with_other_targets(rng: random.Random) -> Case:
    raw = task_arguments(rng.randint(1, 4), rng)
    task = Task(**raw)
    context = {name: raw[name] for name in ("xc", "yc", "context_mask")}
    words = twisted(raw, OF_TASKS, rng)
    raw |= context

    def call() -> Values:
        return points_of(task.with_targets(raw["xt"], raw["yt"], raw["target_mask"]))

    return Case(call, lambda: joined([raw]), words)


def found_scales(rng: random.Random) -> Case:
    find = rng.choice([aenp.points_per_unit, aenp.wavelengths])
    raw = task_arguments(rng.randint(1, 4), rng)
    words = twisted(raw, OF_TASKS, rng)

    def clean() -> Values | None:
        rows = cleaned(raw)
        return [torch.tensor(find([Task(**row) for row in rows]))] if all(row["xt"].shape[1] for row in rows) else None

    return Case(lambda: [torch.tensor(find(Task(**raw)))], clean, f"two distinct points|{words}".strip("|"))


def found_domain(rng: random.Random) -> Case:
    raws = [task_arguments(rng.choice([1, 1, 1, 2]), rng) for _ in range(rng.randint(0, 3))]
    words = [twisted(raw, OF_TASKS, rng) for raw in raws]

    def clean() -> Values:
        points = torch.cat([row[name][0].double() for raw in raws for row in cleaned(raw) for name in ("xc", "xt")])
        return [torch.stack([points.amin(0), points.amax(0)], dim=1)]

    return Case(
        lambda: [torch.tensor(FixedInputs.domain_of(Task(**raw) for raw in raws), dtype=torch.float64)],
        clean,
        "|".join(["task", "dim_x", *filter(None, words)]),
    )


def fixed_inputs(rng: random.Random) -> Case:
    dim_x = rng.randint(1, 4)
    bounds = rng.choice([None, (0.2, 0.6), (None, 0.5), (0.5, 0.5), (-torch.inf, torch.inf)])
    options: Arguments = {"num": 3, "width": 4, "domain": [bounds] * dim_x, "fourier": rng.choice([0, 2])}
    wrong: Arguments = rng.choice(
        [
            *[{}] * 12,
            {"num": 0},
            {"width": 0},
            {"fourier": -1},
            {"dropout": torch.nan},
            {"taper": 0.7},
            {"domain": [(1.0, 0.0)] * dim_x},
            {"domain": [(torch.nan, 1.0)] * dim_x},
            {"domain": [(0.0, 1.0)] * (dim_x + 1)},
            {"domain": [0.0] * dim_x},
        ]
    )
    raw = {"x": torch.rand(2, 3, dim_x, dtype=rng.choice(FLOATS))}
    words = "|".join(filter(None, [twisted(raw, ANY, rng), *wrong]))
    seed = rng.random()

    def call(x: Tensor) -> Values:
        torch.manual_seed(int(1e6 * seed))
        return [FixedInputs(dim_x, **{**options, **wrong}).eval()(x).detach()]

    return Case(lambda: call(raw["x"]), lambda: call(raw["x"].clone()), words)


def moved(rng: random.Random) -> Case:
    motion = Euclidean(rng.randint(1, 4)).sample()
    raw = {"matrix": motion.matrix, "offset": motion.offset, "points": torch.rand(3, len(motion.offset))}
    words = twisted(raw, ANY, rng)

    def expected() -> Tensor:
        return raw["points"].double() @ raw["matrix"].double().T + raw["offset"].double()

    def small() -> Tensor:
        return (expected().abs() < LARGE).all(dim=-1)

    def call() -> Values:
        values = Motion(raw["matrix"], raw["offset"])(raw["points"])
        return [values[small()]]

    return Case(call, lambda: [expected()[small()]], f"orthogonal|{words}".strip("|"), 0.02)


def drawn_motion(rng: random.Random) -> Case:
    kind, size = rng.choice([(Translation, 2), (Translation, 2), (Euclidean, 2), (C, 8), (D, 3), (C, 0)])
    scale, offset, centre = rng.choice([0.0, 1.0, 1e30, torch.nan, torch.inf]), an_offset(rng), an_offset(rng)

    def call() -> Values:
        group = kind(size)
        motion = group.element(offset) if isinstance(group, Translation) else group.sample(scale)
        motion = motion.about(centre)
        return [motion.matrix, motion.offset]

    return Case(call, none, "translation|offset|centre|needs n")


def likelihood(rng: random.Random) -> Case:
    make = rng.choice([Normal, NormalMixture])
    min_scale = rng.choice([1e-3, 1e-3, 0.5, 1.0, 0.0, -1.0, torch.nan, torch.inf])
    size = rng.choice([1.0, 1.0, 1e14])
    raw = {"raw": size * torch.randn(2, 3, 18)}
    words = twisted(raw, (layout, shape, kind) if size > 1 else (layout, dtype, shape, kind), rng)

    def call(numbers: Tensor) -> Values:
        prediction = make(min_scale=min_scale)(numbers)
        return [prediction.mean, prediction.stddev, prediction.log_prob(torch.zeros(prediction.batch_shape))]

    return Case(lambda: call(raw["raw"]), lambda: call(raw["raw"].clone()), f"min_scale|{words}".strip("|"))


def score(rng: random.Random) -> Case:
    make = rng.choice([Normal, NormalMixture])
    prediction = make()(torch.randn(2, 3, 2 * make().num_params))
    level = rng.choice([0.5, 0.9, 0.0, 1.0, torch.nan, -0.1, 2.0])
    raw = {"y": torch.randn(2, 3, 2, dtype=rng.choice(FLOATS))}
    words = twisted(raw, ANY, rng)

    def call(y: Tensor) -> Values:
        return [crps(prediction, y), covered(prediction, y, level)]

    return Case(lambda: call(raw["y"]), lambda: call(raw["y"].clone()), f"level|{words}".strip("|"))


def equivariance(rng: random.Random) -> Case:
    model = build(rng.choice(["tnp-exact", "convcnp-exact"]), 1)
    motion = Translation(rng.choice([1, 1, 1, 2])).element(3.0)
    raw = task_arguments(1, rng)
    words = twisted(raw, OF_TASKS, rng)
    return Case(
        lambda: [torch.tensor(equivariance_error(model, Task(**raw), motion))],
        lambda: None if is_large(raw) else [torch.tensor(0.0)],
        f"points of shape|masked|{words}".strip("|"),
        tolerance=0.01,
    )


def counts(rng: random.Random) -> Case:
    model, task = build("cnp", 1), Task(**task_arguments(1, rng))
    number = rng.choice([-1, 0, 1, 3, 10**9])
    if number < 10**9 and rng.random() < 0.5:
        return Case(lambda: [aenp.ar_sample(model, task, number)], none, "num_samples")
    return Case(lambda: [aenp.predict(model, task, number).mean], lambda: [aenp.predict(model, task).mean], "chunk")


FUNCTIONS = (
    a_task,
    stacked,
    shifted,
    with_other_targets,
    found_scales,
    found_domain,
    fixed_inputs,
    moved,
    drawn_motion,
    likelihood,
    score,
    equivariance,
    counts,
)


def function_input(rng: random.Random) -> tuple[str, Case]:
    function = rng.choice(FUNCTIONS)
    return function.__name__, function(rng)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
