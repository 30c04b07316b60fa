"""Shapes and types in signatures are checked in every test, and only there."""

import torch
from jaxtyping import install_import_hook

install_import_hook("aenp", "typechecker.check")
torch.set_num_threads(1)
