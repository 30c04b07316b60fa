"""Sizes of models of the plane, which the experiments with patches of a grid share."""

from aenp.data.patches import CELLS_PER_UNIT

GRID = {"on_grid": True, "points_per_unit": float(CELLS_PER_UNIT)}
SMALL_UNET = GRID | {"channels": 32, "layers": 7, "kernel": 5, "margin": 1}
SMALL_GROUP = GRID | {"group": "C4", "network": "unet", "channels": 32, "layers": 5, "kernel": 5, "margin": 0}
SMALL_PTTNP = {
    "attention": "spectral",
    "wavelengths": (0.125, 8.0),
    "pseudo_tokens": 64,
    "pseudo_spread": 0.7,
    "dim": 64,
    "heads": 4,
    "layers": 3,
}

PAPER_UNET = GRID | {"channels": 16, "growth": 2, "layers": 9, "kernel": 9}
PAPER_RELAXED = PAPER_UNET | {"kernels": 1}
PAPER_GROUP = GRID | {"group": "C8", "channels": 16, "fields": 16, "layers": 9, "kernel": 9}
PAPER_FIXED = {"num": 16, "width": 16, "dropout": 0.5}
PAPER_PTTNP = {"attention": "mlp", "pseudo_tokens": 128, "dim": 128, "heads": 8, "layers": 9}
PAPER_PTTNP_FIXED = {"num": 128, "width": 128, "dropout": 0.5}
PAPER_TASKS = {"equal_sizes": False, "num_targets": None}
"Contexts of different sizes in a batch, and all targets."
