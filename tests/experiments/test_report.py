"""Reproduction: each number of a table is in the right row and column, with the right sign."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from aenp import save
from aenp.data import GibbsTasks, Patches
from aenp.evaluation.plots import model_maps
from aenp.evaluation.scores import Score
from aenp.experiments import Experiment, experiments, key
from aenp.experiments.comparison import Comparison
from aenp.experiments.experiment import Stratum, key_of
from aenp.experiments.gp.experiment import INSIDE, OUTSIDE, Gibbs
from aenp.experiments.seeds import seeds_section
from aenp.models import make
from aenp.process import NeuralProcess
from aenp.task import Task

SIZES = {"tnp": {"dim": 8, "heads": 2, "layers": 1}, "cnp": {"dim": 8}}


class Short(Gibbs):
    """The 1-D experiment with few tasks, one oracle and numbers of the paper that identify their origin."""

    paper = {  # noqa: RUF012
        "here": {"tnp-exact": (1.25, 0.1), "tnp-approx": (1.5, 0.1)},
        "there": {"tnp-exact": (2.25, 0.2), "tnp-approx": (2.5, 0.2)},
        "context, here": {"ground truth": (3.0, 0.3), "tnp-approx": (3.5, 0.3)},
        "deviation": {"tnp-approx": (4.5, 0.4)},
    }
    paper_tests = {"there": "the moon"}  # noqa: RUF012

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        return {"here": [_stratum(INSIDE, seed)], "there": [_stratum(OUTSIDE, seed)]}


def _stratum(source: GibbsTasks, seed: int) -> Stratum:
    def oracles(task: Task) -> dict[str, torch.distributions.Distribution]:
        return {"ground truth": torch.distributions.Normal(torch.zeros_like(task.yt), 1.0)}

    return Stratum(source.batch(3, 0, seed), oracles)


def small(family: str, symmetry: str, seed: int = 0) -> NeuralProcess:
    torch.manual_seed(seed)
    options = SIZES.get(family, {"channels": 4, "layers": 3, "points_per_unit": 4.0})
    return make(family, symmetry, 1, 1, **options).eval()  # type: ignore[arg-type]


def evaluation(*models: tuple[str, str]) -> Comparison:
    return Comparison(Short(), {key(*model): small(*model) for model in models}, tasks=1, seed=0)


def rows(table: str) -> dict[str, list[str]]:
    """The cells of each row, by its first; the header is the row of `model`."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "---" not in line]
    return {first: cells for first, *cells in lines}


def test_findings_of_the_paper_are_compared_by_sign_and_error() -> None:
    compared = evaluation(("tnp", "exact"), ("tnp", "approx"), ("tnp", "none"))
    exact, noise = torch.zeros(1, 100), 0.1 * torch.randn(1, 100)

    def verdicts(gain: float, error: float, without: float = 0.0) -> str:
        compared.experiment.paper = {"here": {"tnp-exact": (1.0, 0.0), "tnp-approx": (1.5, error)}}  # type: ignore[misc]
        compared.experiment.paper["here"]["tnp-none"] = (0.25, 0.0)  # type: ignore[index]
        for name, mean in (("tnp-exact", 0.0), ("tnp-approx", gain), ("tnp-none", without)):
            compared.values["here"][name]["loglik"] = exact + mean + noise * (mean != 0)
        (line,) = (line for line in compared.verdicts().splitlines() if line.startswith("- *here*"))
        return line

    assert "as in the paper: TNP (T~) over TNP (T) (+0.75; paper +0.50)" in verdicts(0.75, 0.1)
    assert "unlike the paper: TNP (T~) over TNP (T) (-0.75; paper +0.50)" in verdicts(-0.75, 0.1)
    assert "unlike the paper: TNP (T~) over TNP (T) (+0.75; paper +0.50)" in verdicts(0.75, 0.3)
    assert "as in the paper: TNP over TNP (T) (-0.75; paper -0.75)" in verdicts(0.0, 0.1, without=-0.75)
    assert not evaluation(("tnp", "exact")).verdicts()


def test_gains_with_each_seed_stand_beside_their_mean_and_spread(tmp_path: Path) -> None:
    """Only runs with the newest budget count, and only pairs that both have several seeds."""

    def line(model: str, seed: int, loglik: float, part: float, steps: int = 9) -> str:
        family, symmetry = model.split("-")
        settings = {"model": family, "symmetry": symmetry, "steps": steps} | ({"seed": seed} if seed else {})
        scores = {test: {"loglik": {"mean": loglik}, "equivariant_loglik": {"mean": part}} for test in ("here", "far")}
        return json.dumps({"settings": settings, "tasks": 2048, "test_seed": 7, "steps": steps, "scores": scores})

    folder = tmp_path / "ablations" / "gp-symmetry"
    folder.mkdir(parents=True)
    old = [line("tnp-exact", 0, 8.0, 8.0, steps=4), line("tnp-approx", 0, 9.0, 8.0, steps=4)]
    exact = [line("tnp-exact", seed, 1 + seed / 4, 1 + seed / 4) for seed in range(3)]
    approx = [line("tnp-approx", seed, 2 + seed / 2, 1 - seed / 2) for seed in range(3)]
    single = [line("convcnp-exact", 0, 0.0, 0.0), line("convcnp-approx", 0, 1.0, 0.0)]
    oracles = json.dumps({"settings": {}, "tasks": 2048, "test_seed": 7, "scores": {}})
    (folder / "results.jsonl").write_text("\n".join([*old, *exact, *approx, *single, oracles]))
    section = seeds_section(tmp_path, "gp", str.upper)
    assert "trained for 9 steps by `aenp ablate symmetry gp`, **a smaller" in section and "2,048 tasks" in section
    table = rows(section[section.index("| model") :])
    cells = [
        "2.5000 ± 0.5000 (2.0000, 2.5000, 3.0000)",
        "1.2500 ± 0.2500 (1.0000, 1.2500, 1.5000)",
        "2.0000 ± 1.0000 (1.0000, 2.0000, 3.0000)",
    ]
    assert table["TNP-APPROX"] == 2 * cells and "CONVCNP-APPROX" not in table
    assert seeds_section(tmp_path, "smoke", str) == ""


def test_each_test_set_is_shown_beside_the_papers_numbers_for_it() -> None:
    compared = evaluation(("tnp", "exact"), ("tnp", "approx"), ("cnp", "none"))
    table = rows(compared.loglik_table())
    assert table["model"] == ["here", "paper", "there", "paper, the moon"]
    for name, label, here, there in (
        ("tnp-exact", "TNP (T)", "1.25 ± 0.1", "2.25 ± 0.2"),
        ("tnp-approx", "TNP (T~)", "1.5 ± 0.1", "2.5 ± 0.2"),
        ("cnp-none", "CNP", "", ""),
    ):
        ours = [str(Score.of(compared.values[test][name]["loglik"])) for test in ("here", "there")]
        assert table[label] == [ours[0], here, ours[1], there]


def test_scores_of_the_context_are_shown_for_every_test_set_beside_the_papers() -> None:
    compared = evaluation(("tnp", "approx"))
    context = rows(compared.context_table())
    assert context["model"] == ["here", "paper", "there"]
    assert (context["ground truth"][1], context["TNP (T~)"][1]) == ("3.0 ± 0.3", "3.5 ± 0.3")
    for test, cell in zip(("here", "there"), context["TNP (T~)"][::2], strict=True):
        assert cell == str(Score.of(compared.values[test]["tnp-approx"]["context_loglik"]))


@pytest.mark.parametrize(
    ("number", "printed"), [((-0.5, 0.004), "-0.500 ± 0.004"), ((-1.3734, 0.002), "-1.3734 ± 0.002")]
)
def test_the_papers_numbers_have_the_decimals_of_its_tables(number: tuple[float, float], printed: str) -> None:
    compared = evaluation(("tnp", "exact"))
    compared.experiment.paper = {"here": {"tnp-exact": number}}  # type: ignore[misc]
    assert rows(compared.loglik_table())["TNP (T)"][1] == printed


def test_without_approximate_models_there_is_no_gain_to_tell() -> None:
    assert evaluation(("tnp", "exact"), ("cnp", "none")).gain_section() == ""
    assert "| TNP (T~) |" in evaluation(("tnp", "exact"), ("tnp", "approx")).gain_section()


def test_a_bound_in_the_paper_is_shown_as_one_and_is_worse_than_any_score() -> None:
    compared = evaluation(("tnp", "exact"), ("tnp", "none"))
    numbers = {"tnp-exact": (0.5, 0.1), "tnp-none": (-1e26, math.nan)}
    compared.experiment.paper = {"there": numbers}  # type: ignore[misc]
    assert rows(compared.loglik_table())["TNP"][-1] == "< −10²⁶"
    for loss, kind in ((9.0, "as in the paper"), (-9.0, "unlike the paper")):
        compared.values["there"]["tnp-none"]["loglik"] = compared.values["there"]["tnp-exact"]["loglik"] - loss
        assert f"{kind}: TNP over TNP (T) ({-loss:+.2f}; paper < −10²⁶)" in compared.verdicts()


def test_deviation_and_distance_are_shown_for_every_model_that_has_them() -> None:
    compared = evaluation(("tnp", "exact"), ("tnp", "approx"))
    table = rows(compared.symmetry_table())
    deviation, distance = (
        str(Score.of(compared.values["here"]["tnp-approx"][f"equivariance_{name}"]))
        for name in ("deviation", "distance")
    )
    assert table["model"] == ["deviation", "paper", "zero for", "after a shift"]
    assert table["TNP (T~)"] == [deviation, "4.5 ± 0.4", "0.0%", distance] and not distance.startswith("0.0000")
    assert table["TNP (T)"] == ["", "", "", "0.0000 ± 0.0000"]


def test_the_share_of_tasks_that_lie_outside_the_domain_is_shown_beside_the_deviation() -> None:
    compared = evaluation(("tnp", "approx"))
    compared.values["here"]["tnp-approx"]["equivariance_deviation"] = torch.tensor([[0.0, 0.1, 0.0, 1e-9]])
    assert rows(compared.symmetry_table())["TNP (T~)"][2] == "50.0%"


def test_the_gain_from_breaking_the_symmetry_is_that_over_the_other_models() -> None:
    """On the same tasks: what makes a task hard for all models adds nothing to the standard error."""
    models = ("tnp", "none"), ("tnp", "exact"), ("tnp", "approx"), ("convcnp", "exact"), ("relaxedconvcnp", "approx")
    compared = evaluation(*models)
    scores = {"tnp-none": 1.0, "tnp-exact": 2.5, "tnp-approx": 3.0, "convcnp-exact": 0.5, "relaxedconvcnp-approx": 0.25}
    parts = {"tnp-approx": 2.75, "relaxedconvcnp-approx": 0.375}
    hard = torch.tensor([[0.0, 4.0, -9.0]], dtype=torch.float64)
    for test, factor in (("here", 1), ("there", 2)):
        compared.values[test] = {name: {"loglik": factor * score + hard} for name, score in scores.items()}
        for name, part in parts.items():
            compared.values[test][name]["equivariant_loglik"] = factor * part + hard
    columns = "Δ vs own equivariant part", "Δ vs no symmetry"
    tnp = "0.5000 ± 0.0000", "0.2500 ± 0.0000", "2.0000 ± 0.0000"
    relaxed = "-0.2500 ± 0.0000", "-0.1250 ± 0.0000", ""
    assert rows(compared.gain_table()) == {
        "model": ["here: Δ vs exact", *columns, "there: Δ vs exact", *columns],
        "TNP (T~)": [*tnp, "1.0000 ± 0.0000", "0.5000 ± 0.0000", "4.0000 ± 0.0000"],
        "RelaxedConvCNP (T~)": [*relaxed, "-0.5000 ± 0.0000", "-0.2500 ± 0.0000", ""],
    }


@pytest.mark.parametrize("name", experiments())
def test_a_model_has_the_same_name_in_every_experiment(name: str) -> None:
    experiment = experiments()[name]()
    for model in experiment.models:
        assert key_of(experiment.model(*model)) == key(*model)


def test_weights_of_any_name_are_shown_beside_the_papers_model_of_their_kind(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(Experiment.known, "gp", Short)
    own, unknown = tmp_path / "tnp-exact.safetensors", tmp_path / "tnp-approx.safetensors"
    save(small("tnp", "approx"), own)
    save(small("cnp", "none"), unknown)
    loglik, _, context, deviation, _ = call("evaluate", "gp", "--weights", own).split("\n\n")[1::2]
    assert rows(loglik)["TNP (T~)"][1::2] == ["1.5 ± 0.1", "2.5 ± 0.2"]
    assert rows(context)["TNP (T~)"][1] == "3.5 ± 0.3" and rows(deviation)["TNP (T~)"][1] == "4.5 ± 0.4"
    assert list(json.loads(call("evaluate", "gp", "--weights", own, "--json"))["models"]) == [str(own)]
    assert rows(call("evaluate", "gp", "--weights", unknown).split("\n\n")[1])["CNP"][1::2] == ["", ""]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that the test writes."""
    written, savefig = list[Figure](), Figure.savefig

    def watched(figure: Figure, *args: object, **options: object) -> None:
        written.append(figure)
        savefig(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", watched)
    return written


def test_weights_of_the_same_kind_are_all_drawn(
    call: Callable[..., str], figures: list[Figure], tmp_path: Path
) -> None:
    files = [tmp_path / "one" / "model.safetensors", tmp_path / "other" / "model.safetensors"]
    for seed, file in enumerate(files):
        save(small("tnp", "approx", seed), file)
    call("plot", "gp", "--weights", *files, "--out", tmp_path)
    assert len(figures) == 3
    for figure in figures:
        one, other = (axis.lines[0].get_ydata() for axis in figure.axes)
        assert not np.allclose(one, other)


def test_maps_of_models_of_the_same_kind_are_all_drawn(figures: list[Figure], tmp_path: Path) -> None:
    models = {str(seed): experiments()["smoke"]().model("convcnp", "exact", seed=seed) for seed in range(2)}
    axis = np.arange(32) / 16
    patch = Patches(np.random.default_rng(0).random((1, 32, 32)), (axis, axis), 32, (100, 100))
    model_maps(models, patch.batch(1, 0, seed=0), "x", "y", "smoke", tmp_path / "maps.png")
    one, other = (axis.images[0].get_array() for axis in figures[0].axes if axis.get_title() == "ConvCNP (T)")
    assert not np.allclose(one, other)
