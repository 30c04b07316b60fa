"""Sources of tasks, drawn from a process, from gridded fields or from stations, and the stream of batches.

They depend on tasks, not on models.
"""

from aenp.data.blocks import hold_out_blocks
from aenp.data.gp import GibbsTasks
from aenp.data.patches import Patches
from aenp.data.random_fields import RandomFields
from aenp.data.random_windows import RandomWindows
from aenp.data.stream import Stream, TaskSource
from aenp.data.windows import Windows

__all__ = [
    "GibbsTasks",
    "Patches",
    "RandomFields",
    "RandomWindows",
    "Stream",
    "TaskSource",
    "Windows",
    "hold_out_blocks",
]
