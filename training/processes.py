"""One process a GPU, as torchrun starts them; alone without it, on the CPU without a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


class Processes:
    def __init__(self) -> None:
        self.rank, self.count = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
        local = int(os.environ.get('LOCAL_RANK', 0))
        self.on_gpu = torch.cuda.is_available()
        self.device = torch.device('cuda', local) if self.on_gpu else torch.device('cpu')
        if self.on_gpu:
            torch.cuda.set_device(local)
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = True
        if self.count > 1:
            dist.init_process_group('nccl' if self.on_gpu else 'gloo')

    @property
    def first(self) -> bool:
        """Whether this one speaks and writes."""
        return self.rank == 0

    def mixed_precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.on_gpu)

    def shared(self, module: nn.Module) -> nn.Module:
        """`module`, whose gradients are averaged over all processes."""
        if self.count == 1:
            return module
        return nn.parallel.DistributedDataParallel(module, device_ids=[self.device.index] if self.on_gpu else None)

    def largest(self, value: float) -> float:
        """Of all processes."""
        if self.count == 1:
            return value
        tensor = torch.tensor(value, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return float(tensor)

    def wait(self) -> None:
        """For all processes."""
        if self.count > 1:
            dist.barrier()

    def say(self, *words: object) -> None:
        if self.first:
            print(*words, flush=True)


@contextmanager
def processes() -> Iterator[Processes]:
    group = Processes()
    try:
        yield group
    finally:
        if group.count > 1:
            dist.destroy_process_group()
