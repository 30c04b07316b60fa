"""A small run in a process of its own, to be killed: `python training_script.py OUT STEPS [resume]`."""

import sys
from pathlib import Path

import torch

from aenp import TNP, FixedInputs
from aenp.data import GibbsTasks
from aenp.training.loop import train
from aenp.training.recipe import Recipe

if __name__ == "__main__":
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    fixed_inputs = FixedInputs(1, num=4, width=4, domain=[(-7.0, 7.0)])
    model = TNP(1, 1, attention="spectral", dim=8, heads=2, layers=1, fixed_inputs=fixed_inputs)
    source = GibbsTasks(num_context=(1, 4), num_targets=4, equal_sizes=True)
    recipe = Recipe(steps=steps, batch_size=2, average=0.9)
    outcome = train(model, source, recipe, out, resume="resume" in sys.argv, checkpoint_seconds=0.0)
    sys.exit(0 if outcome.finished else 130)
