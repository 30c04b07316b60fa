"""The report of everything: it is complete, says what was skipped, and goes on where it was stopped."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from matplotlib import pyplot

from aenp.data import GibbsTasks
from aenp.evaluation.scores import Stratum, TaskValues, model_values
from aenp.experiments import comparison, overview, seeds
from aenp.experiments.gp.experiment import INSIDE, OUTSIDE, Gibbs
from aenp.experiments.temperature.grid import Temperature
from aenp.models import make
from aenp.process import NeuralProcess
from aenp.theory.commands import Approximations, Row

LINEAR = [Row(1, 0.0, 2, 0.5, 1.0)]
THEORY = Approximations(LINEAR, LINEAR, [Row(n, 1.0, 2, 0.25, 1.0) for n in (1, 3, 5)])


class Brief(Gibbs):
    """The 1-D experiment with few tasks, two small models and a figure that takes no time."""

    def shipped_models(self) -> dict[str, NeuralProcess]:
        torch.manual_seed(0)
        sizes = {"dim": 8, "heads": 2, "layers": 1}
        return {f"tnp-{symmetry}": make("tnp", symmetry, 1, 1, **sizes).eval() for symmetry in ("exact", "approx")}

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        def strata(source: GibbsTasks) -> list[Stratum]:
            return [Stratum(source.batch(2, number, seed)) for number in range(2)]

        return {"in distribution": strata(INSIDE), "out of distribution": strata(OUTSIDE)}

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        pyplot.imsave(out / "figure.png", torch.rand(4, 4).numpy())
        return [out / "figure.png"]


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the models that are scored; there are a brief experiment and one that needs data."""
    labels = list[str]()

    def values(model: NeuralProcess, strata: list[Stratum], norm: int) -> TaskValues:
        labels.append(model.label)
        return model_values(model, strata, norm)

    monkeypatch.setattr(comparison, "model_values", values)
    monkeypatch.setattr(overview, "approximations", lambda: THEORY)
    monkeypatch.setattr(overview, "experiments", lambda: {"era5-2d": Temperature, "gp": Brief})
    return labels


def test_the_report_has_every_part_and_says_what_was_skipped(
    scored: list[str], call: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "ablations" / "one").mkdir(parents=True)
    (tmp_path / "ablations" / "one" / "README.md").write_text("# Without dropout\n\n![s](scores.png)\n")
    for picture in ("one/scores.png", "two.png"):
        pyplot.imsave(tmp_path / "ablations" / picture, torch.rand(3, 3).numpy())
    summary = call("reproduce", "--tasks", 4, "--out", tmp_path)
    assert "- `era5-2d`: it needs data; give their directory with --data" in summary and "`gp` " in summary
    page = (tmp_path / "report.html").read_text()
    titles = "Summary", Brief.title, "Without dropout", "Pictures of ablations", "The theory, executable", "The machine"
    assert all(f"<h2>{title}</h2>" in page for title in titles)
    assert page.count("data:image/png;base64,") == 4 == page.count("<img ")
    assert "-0.406 ± 0.004" in page and "holds" in page and str(tmp_path) not in page


def test_without_the_document_the_theory_is_its_tables_and_its_picture(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (overview, seeds):
        monkeypatch.setattr(module, "PACKAGE", tmp_path / "site-packages" / "aenp")
    overview.write_overview(None, tmp_path, 4, 0)
    page = (tmp_path / "report.html").read_text()
    assert "<h2>The theory</h2>" in page and "<td>0.25</td>" in page
    assert page.count("data:image/png;base64,") == 2 == page.count("<img ")


def test_a_report_elsewhere_shows_the_ablations_of_the_checkout(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "results" / "ablations" / "one"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# Without dropout\n")
    monkeypatch.setattr(seeds, "PACKAGE", tmp_path / "src" / "aenp")
    overview.write_overview(None, tmp_path / "elsewhere", 4, 0)
    assert "<h2>Without dropout</h2>" in (tmp_path / "elsewhere" / "report.html").read_text()


def test_the_progress_of_a_model_stands_below_that_of_the_experiments(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(comparison.CONSOLE, "is_interactive", True)
    overview.write_overview(None, tmp_path, 4, 0)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert re.search(r"experiments [^\r\n]*\n[^\r\n]*TNP \(T~\), in distribution", plain)


def test_missing_files_are_named_and_nothing_else_is_lost(
    scored: list[str], call: Callable[..., str], tmp_path: Path
) -> None:
    summary = call("reproduce", "--tasks", 4, "--data", tmp_path, "--out", tmp_path / "results")
    assert "era5_italy_0p25_3hourly_2022-05_06.nc does not exist; era5-2d needs it" in summary
    assert (tmp_path / "results" / "gp" / "README.md").exists()


def test_a_report_that_was_stopped_goes_on_and_another_seed_starts_anew(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(*_: object) -> TaskValues:
        if len(scored) == 3:
            raise KeyboardInterrupt
        return scoring(*_)  # type: ignore[arg-type]

    scoring = comparison.model_values
    monkeypatch.setattr(comparison, "model_values", stopped)
    with pytest.raises(KeyboardInterrupt):
        overview.write_overview(None, tmp_path, 4, 0)
    assert len(scored) == 3 and not (tmp_path / "report.html").exists()
    monkeypatch.setattr(comparison, "model_values", scoring)
    overview.write_overview(None, tmp_path, 4, 0)
    overview.write_overview(None, tmp_path, 4, 0)
    assert len(scored) == 4
    overview.write_overview(None, tmp_path, 4, 1)
    assert len(scored) == 8


def test_the_page_the_results_and_the_figures_are_made_anew_from_scores_that_are_known(
    scored: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page, results, figure = (tmp_path / "gp" / name for name in ("README.md", "results.json", "figure.png"))
    overview.write_overview(None, tmp_path, 4, 0)
    first = results.read_text()
    for file in (results, figure):
        file.write_text("stale")
    monkeypatch.setattr(Brief, "remark", "A new remark.")
    overview.write_overview(None, tmp_path, 4, 0)
    assert results.read_text() == first and figure.read_bytes().startswith(b"\x89PNG")
    assert "A new remark." in page.read_text() and len(scored) == 4


def test_other_weights_are_scored_again(scored: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    overview.write_overview(None, tmp_path, 4, 0)
    models = Brief().shipped_models()
    with torch.no_grad():
        next(models["tnp-exact"].parameters()).add_(0.01)
    monkeypatch.setattr(Brief, "shipped_models", lambda _: models)
    overview.write_overview(None, tmp_path, 4, 0)
    assert scored == ["TNP (T)", "TNP (T~)"] * 2 + ["TNP (T)"] * 2


def test_all_experiments_have_no_common_split(call: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("reproduce", "--split", "paper")
    assert "--split is for a single experiment" in capsys.readouterr().err
