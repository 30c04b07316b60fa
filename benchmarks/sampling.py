"""The time and the scores of coherent samples: `python -m benchmarks.sampling` writes `sampling.md`."""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import torch
import tyro
from torch import Tensor

import aenp
from aenp.data import GibbsTasks
from aenp.evaluation.metrics import energy_score, variogram_score
from aenp.evaluation.scores import Score
from aenp.evaluation.tables import markdown_table
from benchmarks.measure import interleaved_times
from benchmarks.reference import plain_chain
from benchmarks.speed import machine

HERE = Path(__file__).parent
SEED = 2**33
HEADER = ["method", "time", "faster", "energy", "variogram", "difference in energy", "in variogram"]


def samplers(model: aenp.NeuralProcess, samples: int, points: int) -> dict[str, Callable[[aenp.Task], Tensor]]:
    return {
        "plain chain": lambda task: plain_chain(model, task, samples),
        "`ar_sample`": lambda task: aenp.ar_sample(model, task, samples),
        f"`ar_sample`, points={points}": lambda task: aenp.ar_sample(model, task, samples, points),
        "independent draws": lambda task: aenp.predict(model, task).sample((samples,)),
    }


def main(
    model: str = "gp/tnp-approx",
    targets: int = 100,
    samples: int = 20,
    points: int = 50,
    tasks: int = 60,
    seconds: float = 30.0,
    out: Path = HERE,
) -> None:
    """Draws samples by each method, which take turns, and scores them on the same tasks.

    Args:
        model: a shipped model of one-dimensional tasks.
        targets: targets of a task.
        samples: samples of a task.
        points: targets that are drawn one after another, where not all are.
        tasks: tasks that are scored.
        seconds: how long the methods take turns.
        out: directory for `sampling.md`.
    """
    torch.set_num_threads(1)
    draw = samplers(aenp.pretrained(model), samples, points)
    typical = GibbsTasks(num_targets=targets, num_context=(32, 32)).batch(1, 0, SEED)
    times = interleaved_times(
        {name: lambda each=each: each(typical) for name, each in draw.items()}, seconds, process_time
    )
    scored = [GibbsTasks(num_targets=targets).batch(1, index, SEED) for index in range(tasks)]
    scores = {}
    for name, each in draw.items():
        torch.manual_seed(0)
        drawn = [(each(task), task.yt) for task in scored]
        for score in (energy_score, variogram_score):
            scores[name, score] = torch.cat([score(*pair) for pair in drawn])  # type: ignore[arg-type]
    plain = "plain chain"
    rows = [
        [
            name,
            f"{times[name]:.2f} s",
            f"{times[plain] / times[name]:.1f} ×",
            f"{scores[name, energy_score].mean():.3f}",
            f"{scores[name, variogram_score].mean():.4f}",
            *(
                str(Score.of((scores[name, score] - scores[plain, score])[None]))
                for score in (energy_score, variogram_score)
            ),
        ]
        for name in draw
    ]
    page = f"""# Coherent samples

Written by `python -m benchmarks.sampling`: {machine()}.

{samples} samples of {targets} targets from `{model}`, in processor time of one core, for a context of 32 points.
Energy score and variogram score, smaller is better, are means over {tasks} tasks of the Gibbs experiment. The plain
chain draws one target after another in random order. Differences are to the plain chain on the same tasks. Independent
draws ignore how targets are related: a score that does not tell them from the chain does not see that.

{markdown_table(HEADER, rows)}
"""
    (out / "sampling.md").write_text(page)
    print(page)


if __name__ == "__main__":
    tyro.cli(main)
