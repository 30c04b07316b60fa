"""The contract: properties that every model at every symmetry has."""

import copy
import sys

import pytest
import torch

import aenp
from aenp import Task
from aenp.evaluation.metrics import equivariance_error
from aenp.models import FAMILIES
from aenp.symmetry import D, Euclidean, Motion, Translation
from catalogue import ATTENTION, CASES, DOMAIN, EACH_KIND, GRID, KINDS, build, fixed, random_task, train
from test_package import python

EVERY = list(CASES)
PLANE = [key for key in EVERY if key[1] <= 2]
SYMMETRIC = [key for key in EVERY if key[0] != "cnp" and not key[0].endswith("none")]
APPROX = [key for key in EVERY if "approx" in key[0]]
MOTIONS = [key for key in EVERY if key[0].startswith("equivcnp") or "distance" in key[0]]
SHIFTS = [7.3, 100.0, 1e6]


def each(keys):
    return pytest.mark.parametrize(("name", "dim_x"), keys, ids=[f"{name}-{d}d" for name, d in keys])


def assert_same(prediction, other, tolerance=1e-5):
    for value, expected in zip(moments_of(prediction), moments_of(other), strict=True):
        torch.testing.assert_close(
            value.to(expected.dtype), expected, rtol=tolerance, atol=tolerance * expected.abs().max().item()
        )


def moments_of(prediction):
    return prediction.mean, prediction.stddev


def differs(prediction, other):
    return (prediction.mean - other.mean).abs().max() > 1e-4 * other.mean.abs().max()


def test_each_family_at_every_symmetry_is_a_kind():
    models = [build(*key) for key in EACH_KIND]
    assert {(model.family, model.symmetry) for model in models} == {
        (name, symmetry) for name, family in FAMILIES.items() for symmetry in family.symmetries
    }


@each(EVERY)
def test_shapes_values_and_gradients(name, dim_x):
    model = build(name, dim_x).train()
    if model.fixed_inputs is not None:
        model.fixed_inputs.dropout = 0.0
    for context in (0, 1, 40):
        task = random_task(dim_x, context)
        prediction = model(task)
        assert prediction.mean.shape == prediction.stddev.shape == prediction.log_prob(task.yt).shape == (3, 7, 2)
        score = aenp.loglik(model, task)
        assert score.shape == (3,)
        model.zero_grad()
        score.mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    idle = [key for key, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert not idle, f"parameters that nothing depends on: {idle}"


@each(PLANE)
def test_the_order_of_the_context_does_not_matter(name, dim_x):
    model, task = build(name, dim_x), random_task(dim_x)
    order = torch.randperm(9)
    assert_same(model(task.xc[:, order], task.yc[:, order], task.xt), model(task))


@each(PLANE)
def test_two_points_in_either_order(name, dim_x):
    """The mean of two points is equally near to both: their order must not decide the anchor."""
    model, task = build(name, dim_x), random_task(dim_x, context=2)
    assert_same(model(task.xc.flip(1), task.yc.flip(1), task.xt), model(task))


@each(EVERY)
def test_masked_points_are_ignored(name, dim_x):
    """Of the tasks none, one and five points are left, by a mask or because the others have no output."""
    model, task = build(name, dim_x), random_task(dim_x)
    mask = (torch.arange(9) < torch.tensor([[0], [1], [5]]))[:, torch.randperm(9)]
    far = torch.where(mask[..., None], task.xc, 1e5)
    missing = torch.where(mask[..., None], task.yc, torch.nan)
    alone = [model(one.xc[:, seen], one.yc[:, seen], one.xt) for one, seen in zip(task, mask, strict=True)]
    expected = torch.distributions.Normal(
        *(torch.cat(moments) for moments in zip(*map(moments_of, alone), strict=True))
    )
    assert_same(model(Task(far, task.yc, task.xt, context_mask=mask)), expected)
    assert_same(model(far, missing, task.xt), expected)


@each(EVERY)
def test_a_batch_equals_its_tasks_one_by_one(name, dim_x):
    model = build(name, dim_x)
    tasks = [random_task(dim_x, context, target, batch=1, seed=context) for context, target in ((3, 5), (9, 2), (0, 4))]
    tasks[1] = Task(tasks[1].xc * 0.3 + 1, tasks[1].yc, tasks[1].xt * 0.3 + 1, tasks[1].yt)
    together = model(Task.stack(tasks))
    scores = aenp.loglik(model, Task.stack(tasks))
    for i, task in enumerate(tasks):
        alone, count = model(task), task.xt.shape[1]
        for value, expected in ((together.mean, alone.mean), (together.stddev, alone.stddev)):
            torch.testing.assert_close(value[i : i + 1, :count], expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(scores[i : i + 1], aenp.loglik(model, task), rtol=1e-4, atol=1e-5)


@each(EVERY)
def test_further_targets_do_not_change_the_others(name, dim_x):
    """Attention: wherever they are. On a grid: within its extent."""
    model, task = build(name, dim_x), random_task(dim_x)
    further = random_task(dim_x, target=20, seed=5).xt
    if not hasattr(model, "lattice"):
        further = 50 * further
    else:
        further = torch.maximum(torch.minimum(further, task.xt.amax(1, keepdim=True)), task.xt.amin(1, keepdim=True))
    more = model(task.xc, task.yc, torch.cat([further, task.xt], dim=1))
    fewer = model(task)
    torch.testing.assert_close(more.mean[:, 20:], fewer.mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(more.stddev[:, 20:], fewer.stddev, rtol=1e-5, atol=1e-5)


@each(SYMMETRIC)
def test_translations(name, dim_x):
    model, task = build(name, dim_x), random_task(dim_x)
    train(model)
    generator = torch.Generator().manual_seed(3)
    with model.equivariant():
        for size in SHIFTS:
            direction = torch.randn(dim_x, dtype=torch.float64, generator=generator)
            motion = Translation(dim_x).element(size * direction / direction.norm())
            assert equivariance_error(model, task, motion) <= 1e-5


@each([key for key in SYMMETRIC if key[1] <= 2])
def test_translations_of_gridded_data(name, dim_x):
    """Points of a lattice, where round-off could move a cell's edge past a point."""
    model = build(name, dim_x)
    axes = [torch.arange(4, dtype=torch.float64) / 4] * dim_x
    lattice = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).view(1, -1, dim_x)
    task = Task(lattice[:, ::2], torch.randn(1, lattice[:, ::2].shape[1], 2), lattice)
    with model.equivariant():
        for size in [0.1, *SHIFTS]:
            assert equivariance_error(model, task, Translation(dim_x).element(size)) <= 1e-5


def lattice_motions(model):
    """A rotation and a reflection of the model's group that a lattice represents exactly, about a centre."""
    centre = torch.tensor([31.7, -2.9, 4.1, 0.3], dtype=torch.float64)[: model.dim_x]
    if model.dim_x == 2:
        elements = D(4).elements()[1 : 4 if model.symmetry_group == "SE" else 8 : 4]
    else:
        mirror = -torch.eye(model.dim_x, dtype=torch.float64)
        elements = [Motion(mirror, torch.zeros(model.dim_x, dtype=torch.float64))]
    return [element.about(centre) for element in elements]


@each(MOTIONS)
@pytest.mark.parametrize("gridded", [False, True], ids=["scattered", "gridded"])
def test_rotations_and_reflections_of_the_lattice(name, dim_x, gridded):
    """Rotations by 90° and, except for C8, reflections, about any centre."""
    model, task = build(name, dim_x), random_task(dim_x)
    train(model)
    if gridded:
        task = Task((8 * task.xc).round() / 8, task.yc, (8 * task.xt).round() / 8)
    with model.equivariant():
        for motion in lattice_motions(model):
            assert equivariance_error(model, task, motion) <= 1e-5
        if name.startswith("rcnp"):
            assert equivariance_error(model, task, Euclidean(dim_x).sample()) <= 1e-5


@pytest.mark.parametrize("network", ["unet", "cnn"])
@pytest.mark.parametrize("points", range(1, 9))
def test_reflections_of_points_on_the_models_own_lattice(network, points):
    """The mean of such points may lie on a cell or halfway between two; no block of cells may depend on which."""
    torch.manual_seed(points)
    model = aenp.EquivCNP(1, 1, network=network, points_per_unit=16, channels=8, layers=7)
    for gap in (1, 3):
        xc = gap * torch.arange(points, dtype=torch.float64).view(1, -1, 1) / 16
        task = Task(xc, torch.randn(1, points, 1), torch.linspace(-1, 2, 40, dtype=torch.float64).view(1, -1, 1))
        mirror = Motion(-torch.eye(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        assert equivariance_error(model, task, mirror) <= 1e-5


def test_equivcnp_does_not_pool_where_that_breaks_its_symmetry():
    assert aenp.EquivCNP(1, 1, on_grid=True).network.stride == 1
    with pytest.raises(ValueError, match="network='unet' with dim_x=1 needs on_grid=False"):
        aenp.EquivCNP(1, 1, network="unet", on_grid=True)


@pytest.mark.parametrize("group", ["C4", "D8"])
@pytest.mark.parametrize("points", [1, 2, 4, 12, 40])
def test_group_u_nets_turn_with_data_on_the_grid(group, points):
    """Also where the mean of the context lies halfway between two nodes, as that of two or four neighbours may."""
    torch.manual_seed(points)
    options = {"points_per_unit": 4.0, "on_grid": True, "network": "unet", "margin": 0, **GRID}
    model = aenp.EquivCNP(2, 1, group=group, **options).double()
    nodes = torch.cartesian_prod(*[torch.arange(9, dtype=torch.float64)] * 2)
    for _ in range(3):
        order = torch.randperm(81)
        task = Task(nodes[order[:points]][None] / 4, torch.randn(1, points, 1).double(), nodes[None] / 4)
        elements = D(4).elements()[: 4 if group.startswith("C") else 8]
        for element in elements:
            motion = element.about(torch.tensor([1.0, 2.5], dtype=torch.float64))
            assert equivariance_error(model, task, motion) <= 1e-6


def test_blocks_lie_closest_around_a_patch():
    """No cell more than the patch has, where its context reaches its edges and its sides are whole blocks."""
    model = aenp.ConvCNP(2, 1, on_grid=True, points_per_unit=16.0, margin=0, channels=8, layers=7)
    nodes = torch.cartesian_prod(*[torch.arange(32) / 16] * 2)[None]
    context = nodes[:, torch.randperm(1024, generator=torch.Generator().manual_seed(0))[:300]]
    task = Task(context, torch.zeros(1, 300, 1), nodes)
    for shift in ((0.0, 0.0), (3.3, -7.1)):
        lattice = model.lattice(task.shift(shift))
        assert lattice.shape == (32, 32)
        torch.testing.assert_close(lattice.origin[0, 0] - torch.tensor(shift), torch.zeros(2), rtol=0, atol=1e-5)


@each(APPROX)
def test_fixed_inputs_break_the_symmetry_inside_the_domain_only(name, dim_x):
    model, task = build(name, dim_x), random_task(dim_x)
    inside, part = model.symmetry_breaking(task)
    assert differs(inside, part)
    assert equivariance_error(model, task, Translation(dim_x).element(1.3)) > 2e-5
    outside, part = model.symmetry_breaking(task.shift(3 * DOMAIN[1] + 8))
    torch.testing.assert_close(outside.mean, part.mean, rtol=0, atol=0)
    torch.testing.assert_close(outside.stddev, part.stddev, rtol=0, atol=0)


@each([key for key in APPROX if "concatenate" not in key[0]])
def test_without_fixed_inputs_a_model_is_the_exact_one(name, dim_x):
    model, task = build(name, dim_x), random_task(dim_x)
    arguments = {
        key: value for key, value in model.arguments.items() if key not in ("fixed_inputs", "fixed_at_targets")
    }
    twin = type(model)(**arguments).eval()
    twin.load_state_dict({key: value for key, value in model.state_dict().items() if key in twin.state_dict()})
    assert (twin.symmetry, model.symmetry) == ("exact", "approx")
    with model.equivariant():
        assert_same(model(task), twin(task), tolerance=1e-6)
    assert differs(model(task), twin(task))


@each([(name, d) for name, d in EVERY if (name, d - 1) not in CASES])
def test_saved_and_loaded_bit_for_bit(name, dim_x, tmp_path):
    model, task = build(name, dim_x), random_task(dim_x)
    aenp.save(model, tmp_path / "model.safetensors")
    loaded = aenp.load(tmp_path / "model.safetensors")
    assert loaded.label == model.label
    for place in (task, task.shift(20.0)):
        expected = model(place)
        for found in (loaded(place), copy.deepcopy(model)(place)):
            assert torch.equal(found.mean, expected.mean) and torch.equal(found.stddev, expected.stddev)


@each(PLANE)
def test_float64_weights(name, dim_x):
    model, task = build(name, dim_x), random_task(dim_x)
    double = copy.deepcopy(model).double()
    assert double(task).mean.dtype == torch.float64
    assert_same(double(task), model(task), tolerance=1e-3)


def test_coordinates_may_be_float32():
    model, task = build("convcnp-exact", 1), random_task(1)
    single = Task(task.xc.float(), task.yc, task.xt.float(), task.yt)
    assert_same(model(single), model(task), tolerance=1e-4)


@pytest.mark.parametrize("name", ["convcnp-exact", "tnp-none"])
def test_a_model_refuses_a_task_of_other_dimensions(name):
    with pytest.raises(ValueError, match="dim_x=1 and dim_y=2"):
        build(name, 1)(random_task(2))


@pytest.mark.parametrize("kind", [aenp.CNP, aenp.TNP, aenp.PTTNP])
def test_a_model_without_symmetry_sees_where_in_its_box_it_is(kind):
    """The same box far away and a hundred times as wide, with the data in the same places of it, changes nothing."""

    def predict(domain, map_x):
        torch.manual_seed(0)
        options = {} if kind is aenp.CNP else {"symmetry": "none"} | ATTENTION
        return kind(2, 2, domain=domain, fourier=4, **options).eval()(random_task(2).map_inputs(map_x))

    near = predict([(-2, 2), (0, 1)], lambda x: x)
    assert_same(predict([(800, 1200), (3000, 3100)], lambda x: 100 * x + x.new_tensor([1000, 3000])), near, 1e-4)
    assert differs(predict([(-2, 2), (0, 2)], lambda x: x), near)


def test_fixed_inputs_need_a_symmetry_to_break():
    with pytest.raises(ValueError, match="no symmetry"):
        aenp.TNP(1, 1, symmetry="none", fixed_inputs=fixed(1))


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_data_on_a_grid(dim_x):
    """The contract where values are placed on the lattice, whose spacing differs between dimensions."""
    torch.manual_seed(0)
    spacing = torch.tensor([0.25, 0.5, 0.2], dtype=torch.float64)[:dim_x]
    t = fixed(dim_x)
    model = aenp.ConvCNP(dim_x, 2, points_per_unit=(1 / spacing).tolist(), on_grid=True, fixed_inputs=t, **GRID).eval()
    nodes = torch.stack(torch.meshgrid(*[torch.arange(6)] * dim_x, indexing="ij"), -1).view(-1, dim_x) * spacing - 0.7
    few = torch.randperm(len(nodes))[:5]
    small = Task(nodes[few][None, :3], torch.randn(1, 3, 2), nodes[few][None])
    large = Task(nodes[few][None] * 2, torch.randn(1, 5, 2), nodes[None] * 2)
    both = model(Task.stack([small, large]))
    torch.testing.assert_close(both.mean[:1, :5], model(small).mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(both.mean[1:], model(large).mean, rtol=1e-5, atol=1e-5)
    assert differs(*model.symmetry_breaking(large))
    with model.equivariant():
        for size in SHIFTS:
            assert equivariance_error(model, large, Translation(dim_x).element(size)) <= 1e-5
    rough = Task(large.xc.float() + 1e4, large.yc, large.xt.float() + 1e4)
    with model.equivariant():
        assert_same(model(rough), model(large), tolerance=1e-4)


@each([key for key in PLANE if key[0] in KINDS])
def test_mixed_precision(name, dim_x):
    """In bfloat16 nearly the same, also on a grid of more cells than it can count, and in float16 with gradients."""
    model, task = build(name, dim_x), random_task(dim_x)
    wide = Task(5 * task.xc, task.yc, 5 * task.xt, task.yt) if dim_x == 1 else task
    with torch.autocast("cpu", torch.bfloat16):
        prediction = model(wide)
    assert prediction.mean.dtype == torch.float32
    assert_same(prediction, model(wide), tolerance=0.1)
    for precision in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", precision):
            score = 1e-3 * aenp.loglik(model, task).mean()
        score.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@each(EACH_KIND)
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_are_refused(name, dim_x, precision):
    model, task = build(name, dim_x).to(precision), random_task(dim_x)
    for use in (model, lambda task: aenp.predict(model, task), lambda task: aenp.ar_sample(model, task, 1)):
        with pytest.raises(ValueError, match="weights must be float32 or float64; got torch"):
            use(task)


NAMES = {name: getattr(aenp, name) for name in ("ConvCNP", "EquivCNP", "FixedInputs", "RelaxedConvCNP")}
ON_GRIDS = [
    "ConvCNP(1, 1, channels=16, kernel=21)",
    "ConvCNP(2, 1, channels=16)",
    "ConvCNP(2, 1, channels=16).double()",
    "ConvCNP(3, 1, fixed_inputs=FixedInputs(3))",
    "RelaxedConvCNP(2, 1, channels=16, kernels=8, fixed_inputs=FixedInputs(2, num=8, width=8))",
    "EquivCNP(1, 1, channels=4, growth=4)",
    "EquivCNP(2, 1)",
]


@pytest.mark.parametrize("model", ON_GRIDS)
@pytest.mark.parametrize("extent", [1e6, 1e14])
def test_points_far_apart_raise_instead_of_filling_the_memory(model, extent):
    model = eval(model, NAMES)
    xc = torch.zeros(1, 3, model.dim_x, dtype=torch.float64)
    xt = torch.stack([xc[0, :2], extent + xc[0, :2]])
    task = Task(xc.expand(2, 3, -1), torch.zeros(2, 3, 1), xt)
    for use in (model, lambda task: aenp.predict(model, task), lambda task: aenp.ar_sample(model, task, 1)):
        with pytest.raises(ValueError, match=r"the grid would need 2 × \d+.* an extent of .* Lower points_per_unit"):
            use(task)


MEMORY = """
import resource
from pathlib import Path

import torch

import aenp
from aenp import Task
from aenp.nn import lattice

torch.set_num_threads(1)


NAMES = {name: getattr(aenp, name) for name in ('ConvCNP', 'EquivCNP', 'FixedInputs', 'RelaxedConvCNP')}


def task_of(extent, dim_x, points=20):
    x = torch.linspace(0, 1, points, dtype=torch.float64).view(1, -1, 1) * torch.tensor(extent).expand(dim_x)
    return Task(x, torch.randn(1, points, 1), x, torch.randn(1, points, 1))


def largest_task(model):
    low, high = 0.0, 1e6
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        try:
            model.lattice(task_of(middle, model.dim_x))
            low = middle
        except ValueError:
            high = middle
    return task_of(low, model.dim_x)


def limit(memory):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (int(used + memory), resource.getrlimit(resource.RLIMIT_AS)[1]))
"""
LARGEST_GRID = """
lattice.LARGEST = 2e8
model = eval({model!r}, NAMES)
aenp.loglik(model, task_of(1.0, model.dim_x)).sum().backward()
limit(6 * lattice.LARGEST)
with torch.no_grad():
    aenp.loglik(model, largest_task(model))
aenp.loglik(model, largest_task(model)).sum().backward()
"""
GLOBE = """
model = aenp.ConvCNP(2, 1, points_per_unit=4, channels=32)
task = task_of([180.0, 359.75], 2, points=2000)
limit(2e9)
with torch.no_grad():
    print(aenp.predict(model, task).mean.isfinite().all().item(), *model.lattice(task).shape)
"""
limited = pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")


@limited
@pytest.mark.slow
@pytest.mark.parametrize("model", ON_GRIDS)
def test_the_largest_grid_fits_into_six_times_the_largest_array(model):
    """Without gradients and with them; measured with a limit of about a quarter of the usual one."""
    python(MEMORY + LARGEST_GRID.format(model=model))


@limited
@pytest.mark.slow
def test_a_quarter_of_a_degree_all_over_the_globe_fits_into_two_gigabytes():
    finite, height, width = python(MEMORY + GLOBE).split()
    assert finite == "True" and int(height) >= 721 and int(width) >= 1440
