"""Tasks elsewhere: the same distances and values, mirrored, out of the domain, and nothing else changed."""

import math

import numpy as np
import pytest
import torch

import aenp
from aenp.data.elsewhere import FAR, Elsewhere, reaches
from aenp.data.patches import Patches

AXIS = np.arange(10, dtype=np.float32) / 16
PATCHES = Patches(np.random.default_rng(0).normal(size=(5, 10, 10)).astype(np.float32), (AXIS, AXIS), 8, (10, 10))


def test_moved_tasks_are_mirrored_and_out_of_the_domain():
    task, own = Elsewhere(PATCHES, 0.5).batch(64, 3, seed=1), PATCHES.batch(64, 3, seed=1)
    moved = (task.xt[..., 0] > 2).all(dim=1)
    assert 16 < moved.sum() < 48 and torch.equal(task.yc, own.yc) and torch.equal(task.yt, own.yt)
    assert torch.equal(task.xc[~moved], own.xc[~moved]) and torch.equal(task.xt[~moved], own.xt[~moved])
    signs = torch.sign(task.xt[moved].diff(dim=1)) * torch.sign(own.xt[moved].diff(dim=1))
    assert all(len(np.unique(each[each != 0])) == 1 for signs in signs for each in signs.T)
    assert {tuple(sign) for sign in signs.nan_to_num().sum(dim=1).sign().int().tolist()} == {
        (a, b) for a in (-1, 1) for b in (-1, 1)
    }
    torch.testing.assert_close(torch.cdist(task.xc, task.xt), torch.cdist(own.xc, own.xt), atol=1e-4, rtol=1e-4)
    t = aenp.FixedInputs(2, domain=((0.0, 1.0),) * 2).eval()
    assert not t(task.xt[moved]).any() and t(task.xt[~moved]).any()


def test_a_share_of_none_and_of_all():
    own = PATCHES.batch(8, 0, seed=0)
    assert torch.equal(Elsewhere(PATCHES, 0.0).batch(8, 0, seed=0).xt, own.xt)
    assert (Elsewhere(PATCHES, 1.0).batch(8, 0, seed=0).xt[..., 0] > FAR - 2).all()


@pytest.mark.parametrize("symmetry", ["exact", "approx"])
def test_models_of_a_grid_find_the_moved_points_on_it(symmetry):
    task = Elsewhere(PATCHES, 1.0).batch(4, 0, seed=0)
    fixed_inputs = aenp.FixedInputs(2, domain=((0.0, 1.0),) * 2) if symmetry == "approx" else None
    model = aenp.ConvCNP(2, 1, 16.0, on_grid=True, channels=4, layers=3, fixed_inputs=fixed_inputs).eval()
    near = model.symmetry_breaking(task.shift([-FAR, 0.0])).equivariant
    torch.testing.assert_close(model(task).mean, near.mean, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("domain", [(0, 8), (-7, 7), (100, 120), (0, 200), (20, 40), (-math.inf, 5)])
def test_a_domain_that_moved_tasks_would_reach_is_known(domain):
    x = np.linspace(max(domain[0], -1e3), domain[1], 50)
    moved = np.concatenate([x + FAR, FAR - x])
    assert reaches([domain, (0.0, 1.0)]) == ((moved >= domain[0]) & (moved <= domain[1])).any()
