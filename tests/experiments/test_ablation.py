"""Ablations: each run is trained and scored once, a run that was cut off is continued, and the page compares them."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.distributions import Normal

from aenp.data import GibbsTasks
from aenp.evaluation.scores import Stratum
from aenp.experiments import Experiment, ablation, experiment_class, kept
from aenp.experiments.experiment import FamilySetup
from aenp.experiments.runs import RunConfig, train_model
from aenp.task import Task
from aenp.training.recipe import Recipe

SMALL = {"attention": "spectral", "dim": 8, "heads": 2, "layers": 1}
CONVOLUTIONS = {"channels": 4, "layers": 3, "points_per_unit": 4.0}
WORDS = ("ablate", "fixed-inputs", "toy_ablated", "--steps", 3, "--threads", 1, "--tasks", 4)


class Interrupted(GibbsTasks):
    """Tasks of which the second batch of a run stops it, once for each number in the list."""

    stops: ClassVar[list[int]] = []

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        if index == 1 and self.stops:
            self.stops.pop()
            signal.raise_signal(signal.SIGINT)
        return super().batch(batch_size, index, seed)


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each training of a toy experiment resumed a run, as they are made."""
    tasks = Interrupted(num_context=(1, 4), num_targets=4)

    class Toy(Experiment):
        name, title, dim_x, norm, domain = "toy_ablated", "A toy", 1, 1, ((-2.0, 2.0),)
        models = (("tnp", "exact"), ("tnp", "approx"), ("convcnp", "exact"), ("relaxedconvcnp", "approx"))
        setups = {  # noqa: RUF012
            "cpu": {
                family: FamilySetup(
                    Recipe(steps=3, batch_size=2), sizes, {"num": 2, "width": 4, "domain": ((-1.0, 1.0),)}
                )
                for family, sizes in (("tnp", SMALL), ("convcnp", CONVOLUTIONS), ("relaxedconvcnp", CONVOLUTIONS))
            }
        }
        paper_ablations = {"fixed-inputs": {"here": {"tnp": {0: -0.5, 2: -0.25}}}}  # noqa: RUF012

        def source(self) -> GibbsTasks:
            return tasks

        def validation(self) -> tuple[list[Task], None]:
            return [], None

        def tests(self, number: int, seed: int) -> dict[str, list[Stratum]]:
            def oracles(task: Task) -> dict[str, Normal]:
                return {"oracle": Normal(torch.zeros_like(task.yt), 1.0)}  # type: ignore[arg-type]

            return {
                test: [Stratum(tasks.batch(number, 2 + i, seed), oracles)] for i, test in enumerate(("here", "far"))
            }

        def figures(self, *_: object) -> list[Path]:
            return []

    resumed: list[bool] = []

    def watched(out: Path, config: RunConfig, resume: bool) -> Any:
        resumed.append(resume)
        return train_model(out, config, resume)

    monkeypatch.setattr(ablation, "train_model", watched)
    monkeypatch.chdir(tmp_path)
    yield resumed
    del Experiment.known["toy_ablated"]


def lines() -> list[dict[str, Any]]:
    file = Path("results", "ablations", "toy_ablated-fixed-inputs", "results.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_an_ablation_of_the_line_takes_its_minutes_once(
    call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a few seconds for each run, with the paper's scores and the oracles; a second call only writes the page."""
    monkeypatch.chdir(tmp_path)
    words = ("ablate", "fixed-inputs", "gp", "--models", "tnp,convcnp", "--num", 1, "--seeds", 0, "--minutes", 0.05)
    printed = call(*words, "--threads", 1, "--tasks", 16)
    out = Path("results", "ablations", "gp-fixed-inputs")
    results, page = (out / "results.jsonl").read_text(), (out / "README.md").read_text()
    rows = [line for line in printed.splitlines() if line.startswith(("| tnp | 1 |", "| convcnp | 1 |"))]
    assert [row.rsplit("|", 4)[-4].strip() for row in rows] == ["-0.409", "-0.451"], printed
    assert "**A small budget**: 0.05 minutes" in page and "| Bayes-optimal |" in page
    monkeypatch.setattr(ablation, "train_model", None)
    assert call(*words, "--threads", 1, "--tasks", 16) == printed
    assert (out / "results.jsonl").read_text() == results


def test_runs_that_are_done_are_not_repeated(call: Callable[..., str], trained: list[bool]) -> None:
    """A further seed trains its own runs alone, another budget all of them, and the test tasks are those asked for."""
    table = call(*WORDS, "--num", "0,2", "--seeds", "0")
    assert trained == [False, False] and len(lines()) == 3
    assert call(*WORDS, "--num", "0,2", "--seeds", "0") == table and len(trained) == 2
    call(*WORDS, "--num", "0,2", "--seeds", "0,1")
    assert trained == [False] * 4 and len(lines()) == 5
    call(*WORDS[:3], "--steps", 4, *WORDS[5:], "--num", "0", "--seeds", "0")
    assert len(trained) == 5
    call(*WORDS[:-1], 6, "--num", "0", "--seeds", "0")
    assert len(trained) == 5 and [line["tasks"] for line in lines()[-2:]] == [6, 6]


def test_runs_of_other_data_are_not_taken_for_these(call: Callable[..., str], trained: list[bool]) -> None:
    """The page tells neither where the data are, nor which border in the same words as another."""
    for number, place in enumerate(("--data=some where", "--data=./some where", "--data=else where")):
        call(*WORDS, "--num", "2", "--seeds", "0", "--border", "paper", place)
        assert len(trained) == (1, 1, 2)[number]
    page = Path("results", "ablations", "toy_ablated-fixed-inputs-paper", "README.md").read_text()
    assert page.startswith("# Ablation in `toy_ablated`: number of fixed inputs, with the paper's border\n")
    assert " --data DIR --steps 3 " in page and "else where" not in page


def test_runs_are_scored_again_by_other_code(
    call: Callable[..., str], trained: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(*WORDS, "--num", "2", "--seeds", "0")
    before = lines()
    monkeypatch.setattr(kept, "code_key", lambda: "other code")
    call(*WORDS, "--num", "2", "--seeds", "0")
    assert len(trained) == 1 and [line["settings"] for line in lines()] == [line["settings"] for line in before]
    assert not {line["test_key"] for line in lines()} & {line["test_key"] for line in before}


def test_without_a_family_of_the_papers_ablations_all_are_varied(
    call: Callable[..., str], trained: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RelaxedConvCNP without fixed inputs is a ConvCNP, and a seed given twice is one run."""
    monkeypatch.setattr(ablation, "FAMILIES", ("other",))
    rows = call(*WORDS, "--num", "0,2", "--seeds", "0,0").splitlines()[2:6]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == 2 * ["tnp"] + 2 * ["relaxedconvcnp"]
    assert len(trained) == 4 and not any("±" in row for row in rows)
    assert [line["settings"]["model"] for line in lines()[:4]] == ["tnp", "tnp", "convcnp", "relaxedconvcnp"]


def test_a_run_that_was_cut_off_is_resumed(call: Callable[..., str], trained: list[bool]) -> None:
    Interrupted.stops.append(1)
    with pytest.raises(SystemExit, match="130"):
        call(*WORDS, "--num", "0,2", "--seeds", "0")
    assert trained == [False] and not Path("results").exists()
    call(*WORDS, "--num", "0,2", "--seeds", "0")
    assert trained == [False, True, False] and [line["steps"] for line in lines()[:2]] == [3, 3]


def test_the_page_compares_means_over_seeds_with_the_paper(call: Callable[..., str], trained: list[bool]) -> None:
    printed = call(*WORDS, "--num", "0,2", "--seeds", "0,1")
    out = Path("results", "ablations", "toy_ablated-fixed-inputs")
    page = (out / "README.md").read_text()
    header, _, exact, approximate = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines()[:4]
    )
    assert header == ["model", "B", "steps", "here", "gain", "paper", "far", "gain"]
    scores = [line["scores"]["here"]["loglik"]["mean"] for line in lines() if line["settings"].get("num_fixed") == 2]
    assert approximate[3].split(" ± ")[0] == f"{sum(scores) / 2:.4f}" and approximate[5] == "-0.25"
    assert exact[1:3] == ["0", "3"] and exact[4] == "" and exact[5] == "-0.5"
    assert printed.splitlines()[2] in page and "| oracle |" in page and "**A small budget**: 3 steps" in page
    command = "aenp ablate fixed-inputs toy_ablated --num 0,2 --seeds 0,1 --steps 3 --threads 1 --tasks 4 --test-seed 1"
    assert f"`{command}`" in page
    assert (out / "scores.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("what", "options", "values"),
    [
        ("dropout", ("--dropout", "0,0.5"), ["0", "0.5"]),
        ("border", (), ["ours", "paper"]),
        ("symmetry", (), ["exact", "approx"]),
    ],
)
def test_other_choices_are_varied_alike(
    what: str, options: tuple[str, ...], values: list[str], call: Callable[..., str], trained: list[bool]
) -> None:
    printed = call("ablate", what, *WORDS[2:], *options, "--seeds", "0")
    assert [row.split(" | ")[1] for row in printed.splitlines()[2:4]] == values and len(trained) == 2


def test_where_the_data_are_stays_out_of_the_results(
    call: Callable[..., str], trained: list[bool], tmp_path: Path
) -> None:
    call(*WORDS, "--num", "0", "--seeds", "0", "--data", tmp_path / "secret")
    assert "--data DIR" in lines()[0]["command"] and "secret" not in json.dumps(lines())


def test_every_kind_of_run_has_a_directory_of_its_own() -> None:
    """The same settings and data have the same one, in whichever ablation."""
    runs = [
        RunConfig("gp", "tnp", "approx", steps=9, num_fixed=2),
        RunConfig("gp", "tnp", "approx", steps=9, num_fixed=2, data="there"),
        RunConfig("gp", "tnp", "approx", steps=9, num_fixed=2, seed=1),
        RunConfig("gp", "tnp", "approx", minutes=9.0, num_fixed=2),
        RunConfig("gp", "tnp", "approx", steps=9, num_fixed=2, border="paper"),
    ]
    names = [ablation._name(run) for run in runs]
    assert names[0] == "tnp-approx_steps-9_num-fixed-2" and len(set(names)) == 5


def test_runs_may_change_the_fixed_inputs_and_the_group() -> None:
    gp = experiment_class("gp")()
    config = RunConfig("gp", "tnp", "approx", num_fixed=3, dropout=0.25, border="paper")
    changed, preset = gp.model("tnp", "approx", setup=config.setup).fixed_inputs, gp.model("tnp", "approx").fixed_inputs
    assert changed is not None and preset is not None and changed.fourier == preset.fourier
    assert (changed.num, changed.dropout, changed.domain) == (3, 0.25, [(-7.0, 7.0)])
    assert (preset.num, preset.dropout, preset.domain) == (64, 0.05, [(-3.0, 3.0)])
    assert config.command() == "aenp train gp --model tnp --symmetry approx --num-fixed 3 --dropout 0.25 --border paper"
    turned = RunConfig("smoke", "equivcnp", "exact", group="D4")
    model = experiment_class("smoke")().model("equivcnp", "exact", setup=turned.setup)
    assert repr(model.group) == "D(4)"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ablate", "dropout", "gp", "--num", "3"), "--num is for `aenp ablate fixed-inputs`; leave it out of"),
        (("ablate", "border", "gp", "--border", "paper"), "--border is for `aenp ablate fixed-inputs or dropout`"),
        (("ablate", "fixed-inputs", "gp", "--num", "1,x"), "expected a whole number from 0 to 10000; got x"),
        (("ablate", "dropout", "gp", "--dropout", "2"), "expected a number from 0 to 1; got 2"),
        (("ablate", "fixed-inputs", "base"), "base has no approximate models"),
        (("ablate", "border", "smoke"), "the fixed inputs of convcnp in smoke have one border only"),
        (("ablate", "dropout", "era5-4d", "--border", "paper"), "of pttnp in era5-4d have one border only"),
        (("ablate", "dropout", "gp", "--models", "cnp"), "gp has approximate models of tnp, convcnp"),
        (
            ("train", "gp", "--model", "tnp", "--symmetry", "exact", "--num-fixed", "3"),
            "num_fixed, dropout and border are for --symmetry approx, which has fixed inputs; got exact",
        ),
        (
            ("train", "gp", "--model", "tnp", "--symmetry", "exact", "--group", "C8"),
            "group is for --model equivcnp, which alone is equivariant to rotations; got tnp",
        ),
        (
            ("train", "gp", "--model", "tnp", "--symmetry", "approx", "--dropout", "2"),
            "dropout must be between 0 and 1",
        ),
    ],
)
def test_errors_name_the_option(
    words: tuple[str, ...], told: str, call: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call(*words)
    assert told in capsys.readouterr().err


def test_a_run_with_the_settings_of_a_shipped_model_is_that_model() -> None:
    every = {"experiment": "gp", "model": "tnp", "symmetry": "approx", "threads": 1}
    assert ablation.is_shipped(RunConfig(**every)) and ablation.is_shipped(RunConfig("smoke", "pttnp", "exact"))
    for other in (
        {"seed": 1},
        {"steps": 100},
        {"num_fixed": 3},
        {"learning_rate": 0.1},
        {"symmetry": "none", "steps": 9},
    ):
        assert not ablation.is_shipped(RunConfig(**every | other))
    assert not ablation.is_shipped(RunConfig("era5-2d", "pttnp", "approx", data="others"))
