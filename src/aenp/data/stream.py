"""The stream of batches that a training run draws from a source of tasks."""

from collections.abc import Iterator
from itertools import count
from typing import Protocol, runtime_checkable

from torch.utils.data import IterableDataset, get_worker_info

from aenp.task import Task


@runtime_checkable
class TaskSource(Protocol):
    """Draws tasks: batch number `index` is a function of its arguments alone.

    Example:
        >>> from aenp.data import GibbsTasks, TaskSource
        >>> isinstance(GibbsTasks(), TaskSource)
        True
    """

    def batch(self, batch_size: int, index: int, seed: int) -> Task: ...


class Stream(IterableDataset[Task]):
    """The endless sequence `source.batch(batch_size, index, seed)`, index = start, start + 1, …

    `DataLoader(stream, batch_size=None, num_workers=k)` yields the same batches in the same order for every k; a worker
    has one thread, so they are the same to the last bit if this process has one too.

    Args:
        source: what draws the tasks.
        batch_size: tasks in a batch.
        seed: streams with different seeds are independent.
        start: index of the first batch, to resume a run where it stopped.
        rank: number of this process, if there are several; each takes every `ranks`-th batch.
        ranks: how many processes there are; `start` counts the batches of each.

    Example:
        >>> from aenp.data import GibbsTasks, Stream
        >>> stream = Stream(GibbsTasks(num_context=(5, 5)), batch_size=2, seed=0)
        >>> next(iter(stream)).xc.shape
        torch.Size([2, 5, 1])
    """

    def __init__(
        self, source: TaskSource, batch_size: int, seed: int, start: int = 0, rank: int = 0, ranks: int = 1
    ) -> None:
        self.source, self.batch_size, self.seed = source, batch_size, seed
        self.start, self.step = start * ranks + rank, ranks

    def __iter__(self) -> Iterator[Task]:
        worker = get_worker_info()
        first, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in count(self.start + first * self.step, stride * self.step):
            yield self.source.batch(self.batch_size, index, self.seed)
