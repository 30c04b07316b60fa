"""Training: a run in a directory of its own, which may be stopped at any time and resumed exactly where it was."""

import logging
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch.nn import Parameter
from torch.utils.data import DataLoader

from aenp.configured import Configured
from aenp.data.elsewhere import FAR, Elsewhere, reaches
from aenp.data.stream import Stream, TaskSource
from aenp.inference import loglik
from aenp.process import NeuralProcess
from aenp.saving import save, written_whole
from aenp.task import Task
from aenp.training.directory import CHECKPOINT, MODEL, alone_in, check_moments, is_first_process, read_checkpoint
from aenp.training.machine import ALONE, Machine
from aenp.training.memory import reuse_memory
from aenp.training.muon import Muon
from aenp.training.progress import Progress
from aenp.training.recipe import Recipe

LOG_EVERY = 50
Batch = dict[str, Any]
"A task's tensors by name, as Lightning can convert and move them."


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its steps and minutes, and whether its budget is used up."""

    steps: int
    minutes: float
    finished: bool


class NonFinite(FloatingPointError):
    """A loss or a parameter is no longer a finite number."""


class Loop(LightningModule):
    """One model in training. Step n depends on the seed, on n and on the state before it, and on nothing else."""

    def __init__(
        self,
        model: NeuralProcess,
        source: TaskSource,
        recipe: Recipe,
        out: Path,
        minutes: float | None,
        seed: int,
        validation: Sequence[Task],
        progress: Progress,
        checkpoint_seconds: float,
        wrap: Callable[[NeuralProcess], Configured],
        keep_best: bool,
    ) -> None:
        super().__init__()
        self.wrap = wrap
        moves = recipe.elsewhere and model.symmetry != "none"
        if moves and model.fixed_inputs is not None and reaches(model.fixed_inputs.domain):
            raise ValueError(
                f"elsewhere moves tasks by {FAR:g} in the first dimension of x, which does not take them out of the "
                f"domain {model.fixed_inputs.domain}; give fixed inputs a smaller domain, or leave elsewhere out"
            )
        self.model, self.recipe, self.out = model, recipe, out
        self.source = Elsewhere(source, recipe.elsewhere) if moves else source
        self.averaged = deepcopy(model).requires_grad_(False)
        self.best = deepcopy(self.averaged) if keep_best and validation else None
        self.best_score = -math.inf
        self.minutes, self.seed, self.validation, self.progress = minutes, seed, validation, progress
        self.checkpoint_seconds = checkpoint_seconds
        self.steps, self.seconds, self.stop = 0, 0.0, False

    @property
    def checkpoint(self) -> Path:
        return self.out / CHECKPOINT

    @property
    def share(self) -> float:
        """The share of the budget that is spent."""
        return self.steps / self.recipe.steps if self.minutes is None else self.seconds / (60 * self.minutes)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        # Lightning cannot clip what a fused optimiser unscales
        return make_optimiser(self.model, self.recipe, fused="mixed" not in self.trainer.precision)

    def train_dataloader(self) -> DataLoader[Batch]:
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        return _loader(Stream(self.source, self.recipe.batch_size, self.seed, self.steps, rank, ranks))

    def val_dataloader(self) -> DataLoader[Batch]:
        return _loader(self.validation)

    def on_train_start(self) -> None:
        self.started = time.monotonic() - self.seconds
        self.saved = self.seconds
        if self.best is not None and self.steps and self.steps % int(self.trainer.val_check_interval) == 0:
            self._keep_if_best(self._score())  # a checkpoint is written before the validation of its step
        if _in_main_thread():
            signal.signal(signal.SIGTERM, self.ask_to_stop)  # in place of Lightning's, which stops without saving

    def ask_to_stop(self, *_: object) -> None:
        """Ends the run after the current step; called again, at once."""
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        draw = np.random.SeedSequence((self.seed, self.global_rank, self.steps))
        draws = int(draw.generate_state(1, np.uint64)[0])
        torch.default_generator.manual_seed(draws)  # what torch.manual_seed does, without its 2 ms
        if self.device.type == "cuda":
            torch.cuda.manual_seed(draws)
        for group in self.optimizers().param_groups:  # type: ignore[union-attr]
            group["lr"] = self.recipe.rate(self.share)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        task = Task(**batch)
        value = self._loglik(self.model, task)
        if not torch.isfinite(value):
            raise NonFinite(f"the log-likelihood is {value.item()} at step {self.steps}")
        if (self.steps + 1) % LOG_EVERY == 0:
            self.log_dict({"loglik": value, "learning_rate": self.recipe.rate(self.share)}, batch_size=len(task))
        return -value

    def _loglik(self, model: NeuralProcess, task: Task) -> torch.Tensor:
        """The mean over tasks; without fixed inputs until it is their turn."""
        with model.equivariant() if self.share < self.recipe.exact_first else nullcontext():
            return loglik(model, task).mean()

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.steps = self.global_step
        weight = 1 - min(self.recipe.average, self.steps / (self.steps + 9))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), weight)
        self.seconds, self.stop = self.trainer.strategy.broadcast((time.monotonic() - self.started, self.stop))
        self.progress.step(self.steps, self.share, -outputs["loss"].item())
        over = self.stop or self.share >= 1
        if over or self.seconds - self.saved >= self.checkpoint_seconds:
            self.save()
        if over:
            self.trainer.should_stop = True

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        task = Task(**batch)
        value = self._loglik(self.averaged, task)
        self.log("validation_loglik", value, batch_size=len(task), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        value = self.trainer.callback_metrics["validation_loglik"].item()
        self.progress.validated(self.steps, value)
        self._keep_if_best(value)

    def _keep_if_best(self, value: float) -> None:
        if self.best is not None and value > self.best_score and self.share >= self.recipe.exact_first:
            self.best.load_state_dict(self.averaged.state_dict())
            self.best_score = value

    @torch.no_grad()
    def _score(self) -> float:
        """The mean over the validation tasks."""
        return torch.cat([loglik(self.averaged.eval(), task.to(self.device)) for task in self.validation]).mean().item()

    def result(self) -> NeuralProcess:
        """The averaged model, or an earlier one if that was better on the validation tasks and is to be kept."""
        if self.best is None or self.best_score == -math.inf or self._score() >= self.best_score:
            return self.averaged
        return self.best

    def save(self) -> None:
        """Writes the state of the run, which appears under its name only once it is complete."""
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.model.parameters()):
            raise NonFinite(f"a parameter is no longer finite at step {self.steps}")
        self.trainer.save_checkpoint(self.checkpoint)
        if self.trainer.is_global_zero:
            save(self.wrap(self.averaged), self.out / MODEL)
        self.saved = self.seconds

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["steps"], checkpoint["seconds"], checkpoint["best_score"] = self.steps, self.seconds, self.best_score

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.steps, self.seconds, self.best_score = (checkpoint[key] for key in ("steps", "seconds", "best_score"))


def make_optimiser(model: NeuralProcess, recipe: Recipe, fused: bool) -> torch.optim.Optimizer:
    """The recipe's optimiser for the model's parameters."""
    hidden, matrices, vectors = _groups(model, recipe)
    decay = recipe.weight_decay
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    if hidden:
        return Muon([{"params": hidden, "weight_decay": decay, "orthogonal": True}, *groups], recipe.learning_rate)
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=fused)


def _groups(model: NeuralProcess, recipe: Recipe) -> tuple[list[Parameter], list[Parameter], list[Parameter]]:
    """Matrices that Muon trains, other parameters with weight decay, and those without, in the optimiser's order."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    hidden = {
        name: parameter
        for name, parameter in trained.items()
        if recipe.optimiser == "muon"
        and name.endswith(("weight", "coefficients"))
        and parameter.ndim > 1
        and min(parameter.flatten(1).shape) >= 16
    }
    others = [parameter for name, parameter in trained.items() if name not in hidden]
    return list(hidden.values()), [p for p in others if p.ndim > 1], [p for p in others if p.ndim <= 1]


class WrittenWhole(TorchCheckpointIO):
    """Writes checkpoints beside their final place; Lightning would write them to the system's temporary directory."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        content = BytesIO()  # torch itself does not report a full disk
        torch.save(checkpoint, content)
        with written_whole(Path(path)) as temporary:
            temporary.write_bytes(content.getbuffer())


def train(
    model: NeuralProcess,
    source: TaskSource,
    recipe: Recipe,
    out: str | os.PathLike[str],
    minutes: float | None = None,
    seed: int = 0,
    validation: Sequence[Task] = (),
    oracle: float | None = None,
    resume: bool = False,
    validate_every: int = 500,
    checkpoint_seconds: float = 60.0,
    machine: Machine = ALONE,
    wrap: Callable[[NeuralProcess], Configured] = lambda model: model,
    keep_best: bool = False,
) -> Outcome:
    """Trains `model` in place and writes `model.safetensors`, logs and checkpoints to the directory `out`.

    Afterwards the model has the averaged weights. A run that is stopped, by Ctrl-C or a crash, and resumed with the
    same arguments, on the same machine with the same number of threads, ends bit for bit like an uninterrupted one, if
    its budget is in steps. While it is running, a second one in the same directory is refused.

    Args:
        model: what to train.
        source: where its tasks come from.
        recipe: how to train it.
        out: the run's directory.
        minutes: the budget as time, in place of the recipe's number of steps; the schedule then follows the clock.
        seed: of the tasks and of the fixed inputs' dropout.
        validation: tasks that the averaged model is scored on at intervals.
        oracle: the best possible score on these, for the progress bar.
        resume: continue the run in `out`.
        validate_every: steps between two validations.
        checkpoint_seconds: time between two checkpoints.
        machine: devices, machines and precision.
        wrap: makes what is saved as `model.safetensors` from the model.
        keep_best: in the end, the model has the averaged weights of the validation at which it scored best.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import aenp
        >>> from aenp.data import GibbsTasks
        >>> from aenp.training import Recipe, train
        >>> with TemporaryDirectory() as folder:
        ...     outcome = train(aenp.CNP(1, 1, dim=8), GibbsTasks(), Recipe(steps=2, batch_size=2), f"{folder}/run")
        >>> outcome.steps, outcome.finished
        (2, True)
    """
    if minutes is not None and not minutes > 0:
        raise ValueError(f"minutes must be positive; got {minutes}")
    out = Path(out)
    progress = Progress(recipe.steps if minutes is None else None, minutes, oracle, quiet=not is_first_process())
    loop = Loop(model, source, recipe, out, minutes, seed, validation, progress, checkpoint_seconds, wrap, keep_best)
    if resume and not loop.checkpoint.exists():
        raise FileNotFoundError(f"{loop.checkpoint} does not exist: there is no run to resume in {out}")
    if not resume and loop.checkpoint.exists():
        raise FileExistsError(f"{out} already holds a run. Resume it, or choose another directory")
    reuse_memory()
    with alone_in(out):
        if resume:
            _restore(loop)
        if loop.share < 1:
            _fit(loop, resume, validate_every, machine)
        model.load_state_dict(loop.result().state_dict())
        model.eval()
        if is_first_process():
            save(wrap(model), out / MODEL)
    return Outcome(loop.steps, loop.seconds / 60, loop.share >= 1)


def _restore(loop: Loop) -> None:
    """Reads the checkpoint's parameters and progress."""
    state = read_checkpoint(loop.checkpoint)
    try:
        loop.load_state_dict(state["state_dict"])
    except (KeyError, TypeError, AttributeError, RuntimeError):
        raise ValueError(f"the run in {loop.out} belongs to another model; resume it with the same arguments") from None
    check_moments(loop.checkpoint, state, [p for group in _groups(loop.model, loop.recipe) for p in group])
    loop.on_load_checkpoint(state)


def _fit(loop: Loop, resume: bool, validate_every: int, machine: Machine) -> None:
    out, recipe, minutes = loop.out, loop.recipe, loop.minutes
    loggers = [
        CSVLogger(out, name="logs", version=f"from_step_{loop.steps}", flush_logs_every_n_steps=LOG_EVERY),
        TensorBoardLogger(out, name="logs", version="tensorboard"),
    ]
    with _quiet(), _stopped_by_ctrl_c(loop), loop.progress:
        trainer = Trainer(
            devices=machine.devices,
            num_nodes=machine.num_nodes,
            plugins=[WrittenWhole()],
            precision=machine.precision,  # type: ignore[arg-type]
            strategy="ddp" if machine.devices * machine.num_nodes > 1 else "auto",
            max_steps=recipe.steps if minutes is None else -1,
            gradient_clip_val=recipe.clip,
            gradient_clip_algorithm=recipe.clip_by,
            logger=loggers,
            log_every_n_steps=LOG_EVERY,
            val_check_interval=validate_every,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            limit_val_batches=1.0 if loop.validation else 0,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        try:
            trainer.fit(loop, ckpt_path=loop.checkpoint if resume else None, weights_only=True)
        except NonFinite as error:
            saved = (
                f"The last good state is {loop.checkpoint}" if loop.checkpoint.exists() else "No state was saved yet"
            )
            raise NonFinite(f"{error}. {saved}; the same settings would fail again. Lower the learning rate") from None
        except SIGTERMException:  # before the first step, while SIGTERM was Lightning's: there is nothing to save
            pass
        except SystemExit:  # Lightning's answer to a second Ctrl-C
            raise KeyboardInterrupt from None


def _loader(tasks: Any) -> DataLoader[Batch]:
    return DataLoader(tasks, batch_size=None, collate_fn=vars)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Lightning's advice on workers and hardware off the screen."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        logger.setLevel(level)


@contextmanager
def _stopped_by_ctrl_c(loop: Loop) -> Iterator[None]:
    if not _in_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, loop.ask_to_stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _in_main_thread() -> bool:
    """Whether this thread may handle signals."""
    return threading.current_thread() is threading.main_thread()
