"""Where a fit starts: at a base model, or from nothing."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_fitting import field, table

import aenp
from aenp.earth import fitting
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.starting import start_at_base, stay_near
from aenp.earth.training_data import prepare
from aenp.experiments.base import Base, BaseWithCovariate
from aenp.likelihoods import NonNegative, Normal
from aenp.process import NeuralProcess, Symmetry
from aenp.task import Task

NAME, KNOWN = "base/pttnp-exact", "base-covariate/tnp-exact"


@pytest.fixture(autouse=True)
def base(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> NeuralProcess:
    """A base model with random weights, in place of that which is shipped."""
    weights = tmp_path_factory.mktemp("weights")
    model = Base().model("pttnp", "exact", seed=7).eval()
    aenp.save(model, weights / f"{NAME}.safetensors")
    aenp.save(BaseWithCovariate().model("tnp", "exact", seed=8), weights / f"{KNOWN}.safetensors")
    for name in (NAME, KNOWN):
        (weights / f"{name}.json").write_text("{}")
    monkeypatch.setattr("aenp.shipped.WEIGHTS", weights)
    return model


def fresh(family: str, symmetry: Symmetry, **options: object) -> tuple[NeuralProcess, Task]:
    """The untrained network of a fit, and a task for it."""
    own = prepare(field((16, 16)), **options)  # type: ignore[arg-type]
    return fitting._model(family, symmetry, own, 0, Normal()).eval(), own.source.batch(2, 0, seed=0)


def same(process: NeuralProcess, base: NeuralProcess, task: Task, plain: Task) -> None:
    """Both models predict the same, up to round-off."""
    with torch.no_grad():
        one, other = process(task), base(plain)
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.stddev, other.stddev, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("symmetry", ["exact", "approx"])
def test_a_fit_starts_with_the_predictions_of_the_base_model(base: NeuralProcess, symmetry: Symmetry) -> None:
    """At step 0 the network predicts what the base model does, with fixed inputs too, which learn at once."""
    process, task = fresh("pttnp", symmetry)
    process.values = "centred"
    assert start_at_base(process) == NAME
    same(process, base, task, task)
    if process.fixed_inputs is not None:
        aenp.loglik(process, task).mean().backward()
        assert process.fixed_inputs.mlp[-1].weight.grad.abs().max() > 0  # type: ignore[union-attr, index]


def test_covariates_have_no_effect_at_the_start(base: NeuralProcess) -> None:
    """A network with covariates starts with the predictions of the base model, which has none, and learns from them."""
    slope = field((16, 16)).latitude.broadcast_like(field((16, 16))[0]).rename("slope")
    process, task = fresh("pttnp", "exact", covariates=[slope])
    process.values = "centred"
    assert start_at_base(process) == NAME
    same(process, base, task, replace(task, context_covariates=None, target_covariates=None))
    aenp.loglik(process, task).mean().backward()
    assert process.embed_covariates[-1].weight.grad[:, -1].abs().max() > 0  # type: ignore[union-attr, index]


@pytest.mark.parametrize("columns", [["elevation"], ["elevation", "distance"]])
def test_the_first_covariate_is_seen_as_by_a_base_model_with_one(columns: list[str]) -> None:
    """A further one has no effect at first, and learns at once."""
    rng, stations = np.random.default_rng(0), table()
    known = {name: rng.normal(size=40)[stations.groupby(["latitude", "longitude"]).ngroup() % 40] for name in columns}
    own = prepare(stations.assign(**known), covariates=columns)
    process, task = fitting._model("tnp", "approx", own, 0, Normal()).eval(), own.source.batch(2, 0, seed=0)
    process.values = "centred"
    assert start_at_base(process, covariates=True) == KNOWN
    plain = replace(
        task, context_covariates=task.context_covariates[..., :1], target_covariates=task.target_covariates[..., :1]
    )
    same(process, aenp.pretrained(KNOWN), task, plain)
    aenp.loglik(process, task).mean().backward()
    assert (process.embed_covariates[0].weight.grad.abs().amax(dim=0) > 0).all()  # type: ignore[union-attr, index]


def test_fits_with_a_covariate_start_at_a_base_model_with_one() -> None:
    """Where there is one; kinds of observations are no such covariate, and the name of the start is kept."""
    stations = table().assign(elevation=lambda each: 100 * each["latitude"])
    assert fit(stations, "tnp", steps=1, covariates=["elevation"]).start == KNOWN
    assert fit(stations, "pttnp", steps=1, covariates=["elevation"]).start == NAME
    assert fit(stations, "tnp", steps=1).start is None


def test_points_of_one_time_are_seen_as_by_the_base_model(base: NeuralProcess) -> None:
    """With a window of time, observations and targets of the same time start with the base model's predictions."""
    process, task = fresh("pttnp", "exact", time="3 days")
    process.values = "centred"
    assert start_at_base(process) == NAME
    xc, xt = (torch.cat([x[..., :2], torch.full_like(x[..., :1], 0.3)], dim=-1) for x in (task.xc, task.xt))
    same(process, base, replace(task, xc=xc, xt=xt), replace(task, xc=task.xc[..., :2], xt=task.xt[..., :2]))
    assert (process.frequencies.frequencies[..., 2] != 0).any()  # type: ignore[union-attr, index]


@pytest.mark.parametrize(
    ("family", "symmetry"),
    [("pttnp", "none"), ("tnp", "exact"), ("convcnp", "exact"), ("equivcnp", "exact"), ("relaxedconvcnp", "approx")],
)
def test_a_network_without_a_base_model_starts_from_nothing(family: str, symmetry: Symmetry) -> None:
    """Where no base model suits the family or the symmetry, the weights stay as they are."""
    process, _ = fresh(family, symmetry)
    before = {name: value.clone() for name, value in process.state_dict().items()}
    assert start_at_base(process) is None
    assert all(torch.equal(value, before[name]) for name, value in process.state_dict().items())


def test_a_base_model_of_other_size_or_likelihood_is_left_aside() -> None:
    """Weights are taken only where the likelihood has the same parameters and every tensor has its place."""
    options = dict(fitting.OPTIONS["pttnp"])
    assert start_at_base(aenp.PTTNP(2, 1, **options)) == NAME
    assert start_at_base(aenp.PTTNP(2, 1, **options, likelihood=aenp.Robust())) == NAME
    assert start_at_base(aenp.PTTNP(2, 1, **options | {"dim": 32})) is None
    assert start_at_base(aenp.PTTNP(2, 1, **options | {"layers": 2})) is None
    assert start_at_base(aenp.PTTNP(2, 1, **options, likelihood=NonNegative())) is None


def test_start_nothing_takes_no_base_model(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit from nothing is the same, bit for bit, whether base models are there or not."""
    data = table()
    asked = fit(data, "pttnp", steps=1, start="nothing")
    based = fit(data, "pttnp", steps=1)
    monkeypatch.setattr("aenp.shipped.WEIGHTS", tmp_path_factory.mktemp("none"))
    without = fit(data, "pttnp", steps=1)
    assert asked.start is None and without.start is None and based.start == NAME
    own, other = asked.state_dict(), without.state_dict()
    assert all(torch.equal(value, other[name]) for name, value in own.items())
    assert not torch.equal(own["process.embed.2.weight"], based.state_dict()["process.embed.2.weight"])


def test_several_variables_start_at_the_base_model() -> None:
    """The kinds of observations are covariates, which the network learns to tell apart."""
    both = field().to_dataset().assign(u10=field() - 280)
    assert fit(both, "pttnp", steps=1).start == NAME


def test_a_resumed_run_keeps_its_start(tmp_path: Path) -> None:
    """What a run started at stays in its directory and its model, whatever is asked for when it is resumed."""
    fit(field(), "pttnp", steps=1, out=tmp_path / "parts")
    assert json.loads((tmp_path / "parts" / "run.json").read_text())["start"] == NAME
    resumed = fit(field(), "pttnp", steps=3, out=tmp_path / "parts", resume=True, start="nothing")
    assert resumed.start == NAME == FieldModel.load(tmp_path / "parts" / "model.safetensors").start
    (tmp_path / "parts" / "run.json").unlink()
    assert fit(field(), "pttnp", steps=4, out=tmp_path / "parts", resume=True).start == NAME
    (tmp_path / "parts" / "run.json").write_text('{"start": 1}')
    with pytest.raises(ValueError, match="does not tell where the run started"):
        fit(field(), "pttnp", steps=5, out=tmp_path / "parts", resume=True)


def test_a_fit_without_a_base_model_says_that_it_starts_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """On one line, if others of its family have one; where a base model was asked for, it is an error."""
    told = "aenp: training starts from nothing, as there is no base model for a pttnp with symmetry='none'"
    assert fit(field(), "pttnp", "none", steps=1).start is None
    assert capsys.readouterr().err.startswith(told)
    fit(field(), "pttnp", "none", steps=1, start="nothing")
    fit(field(), "pttnp", "exact", steps=1)
    fit(field(), "convcnp", "exact", steps=1)
    assert "starts" not in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"no base model for a tnp .*; leave `start` out, or choose another family"):
        fit(field(), "tnp", steps=1, start="base")


class Level(NeuralProcess):
    """Predicts one number everywhere."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.level = torch.nn.Parameter(torch.zeros(1))

    def encode(self, task: Task) -> None:
        return None

    def decode(self, state: None, xt: torch.Tensor, covariates: torch.Tensor | None = None) -> torch.Tensor:
        return torch.cat([self.level.expand(*xt.shape[:-1], 1), torch.zeros_like(xt)], dim=-1).float()

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_trained_weights_stay_near_their_start_where_held_out_tasks_are_better_there(share: float) -> None:
    """Where the end is best, they are not changed in a single bit."""
    process, x = Level(), torch.zeros(1, 4, 1)
    begun = {"level": torch.tensor([3.0])}
    process.level.data.fill_(3.1)
    ended = process.level.clone()
    assert stay_near(process, begun, [Task(x, x, x, torch.full_like(x, 3 + 0.1 * share))]) == share
    assert torch.equal(process.level, ended) == (share == 1)
    torch.testing.assert_close(process.level.data, torch.tensor([3 + 0.1 * share]))


def test_an_interrupt_keeps_the_trained_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    process, x = Level(), torch.ones(1, 4, 1)

    def interrupted(*_: object) -> torch.Tensor:
        if process.level != 1:
            raise KeyboardInterrupt
        return torch.zeros(1)

    process.level.data.fill_(1.0)
    monkeypatch.setattr("aenp.earth.starting.loglik", interrupted)
    assert stay_near(process, {"level": torch.zeros(1)}, [Task(x, x, x, x)]) == 1 and process.level == 1


def test_what_stays_near_the_base_model_is_returned_and_saved(
    base: NeuralProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Seen from the base model's weights, when a run is resumed too; without these there is nothing to stay near."""
    begun = []

    def zeroed(process: NeuralProcess, start: dict[str, torch.Tensor], tasks: list[Task]) -> float:
        begun.append(start["embed.2.weight"])
        process.embed[2].weight.data.zero_()  # type: ignore[union-attr, index, operator]
        return 0.7

    monkeypatch.setattr(fitting, "stay_near", zeroed)
    for steps, resume in ((1, False), (2, True)):
        model = fit(field(), "pttnp", "exact", steps=steps, out=tmp_path, resume=resume)
        for each in (model, FieldModel.load(tmp_path / "model.safetensors")):
            assert not each.state_dict()["process.embed.2.weight"].any()
    assert len(begun) == 2 and all(torch.equal(each, base.state_dict()["embed.2.weight"]) for each in begun)
    assert fit(field(), "pttnp", "exact", steps=1, start="nothing").state_dict()["process.embed.2.weight"].any()
    monkeypatch.setattr("aenp.shipped.WEIGHTS", tmp_path)
    without = fit(field(), "pttnp", "exact", steps=3, out=tmp_path, resume=True)
    assert without.start == NAME and without.state_dict()["process.embed.2.weight"].any()


def test_other_words_are_refused() -> None:
    """A start that is not known raises an error that names those that are."""
    with pytest.raises(ValueError, match="start must be one of base, nothing; got 'zero'"):
        fit(field(), steps=1, start="zero")
