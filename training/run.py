"""A training that may be cut off at any moment: checkpoints, log, lines for people."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from .processes import Processes
from .schedule import Schedule

CHECKPOINT_SECONDS = 45
AGREE_EVERY = 10  # steps between two looks at the clock
LOG_EVERY = 100


class CheckpointMismatchError(Exception):
    """A file's tensors are not of this network."""


class Run:
    """Trains one network by calling a step function, and keeps NAME.checkpoint.pt and NAME.log.jsonl in `folder`."""

    def __init__(self, name: str, folder: Path, group: Processes, schedule: Schedule, network: nn.Module,
                 optimizer: torch.optim.Optimizer, log_every: int = LOG_EVERY) -> None:
        self.name, self.folder, self.group, self.schedule = name, folder, group, schedule
        self.network, self.optimizer, self.log_every = network, optimizer, log_every
        self.rates = [part['lr'] for part in optimizer.param_groups]
        self.average = {key: value.detach().clone() for key, value in network.state_dict().items()}
        self.checkpoint, self.log = folder / f'{name}.checkpoint.pt', folder / f'{name}.log.jsonl'
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def train(self, step: Callable[[float], dict[str, Tensor]]) -> bool:
        """Call `step(progress)`, which returns 'loss' and what else is to be logged, to the end: True; to the piece's: False."""
        figures: list[dict[str, Tensor]] = []
        last = time.monotonic()
        for _ in self._steps():
            given = step(self.schedule.progress)
            self.optimizer.zero_grad(set_to_none=True)
            given['loss'].backward()
            given['gradient'] = nn.utils.clip_grad_norm_(self.network.parameters(), 2.0)
            self.optimizer.step()
            self._follow()
            figures.append({name: value.detach() for name, value in given.items()})
            if self.schedule.step % self.log_every == 0 or self.schedule.step in (1, 20):
                self._report(figures, time.monotonic() - last)
                figures, last = [], time.monotonic()
        self.save()
        return self.schedule.finished

    def _steps(self) -> Iterator[int]:
        saved = time.monotonic()
        schedule = self.schedule
        schedule.agree(self.group.largest(schedule.elapsed()))
        while not schedule.finished:
            for part, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                part['lr'] = rate * schedule.rate
            schedule.step += 1
            yield schedule.step
            if schedule.step % AGREE_EVERY == 0:
                schedule.agree(self.group.largest(schedule.elapsed()))
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self.save()
                    saved = time.monotonic()
                if schedule.interrupted:  # after some steps, however short the piece
                    return

    @torch.no_grad()
    def _follow(self) -> None:
        """The exported weights are a running mean over the second half of the training."""
        if self.schedule.step % 5:
            return
        state = self.network.state_dict()
        floating = [key for key, value in state.items() if value.is_floating_point()]
        mean, now = [self.average[key] for key in floating], [state[key] for key in floating]
        torch._foreach_lerp_(mean, now, 0.01 if self.schedule.progress > 0.5 else 1.0)

    def _report(self, figures: list[dict[str, Tensor]], seconds: float) -> None:
        means = {name: torch.stack([each[name].float() for each in figures]).mean().item() for name in figures[0]}
        schedule = self.schedule
        row = {'step': schedule.step, 'minutes': round(schedule.spent + schedule.elapsed(), 3),
               'steps_per_second': round(len(figures) / seconds, 2)} | {name: round(value, 5) for name, value in means.items()}
        if self.group.first:
            with self.log.open('a') as log:
                log.write(json.dumps(row) + '\n')
        words = ', '.join(f'{name} {value:.4g}' for name, value in means.items())
        self.group.say(f'{self.name} step {schedule.step}, {schedule.progress:.0%}, {schedule.minutes_left:.1f} min left, '
                       f'{len(figures) / seconds:.1f} steps/s: {words}')

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        if self.group.first:
            write_whole(self.checkpoint, {
                'network': self.network.state_dict(), 'average': self.average, 'optimizer': self.optimizer.state_dict(),
                'step': self.schedule.step, 'minutes': self.schedule.spent + self.schedule.elapsed()})

    def _resume(self) -> None:
        if not self.checkpoint.is_file():
            return
        state = torch.load(self.checkpoint, map_location=self.group.device, weights_only=True)
        load_tensors(self.network, state['network'], self.checkpoint)
        self.average = state['average']
        self.optimizer.load_state_dict(state['optimizer'])
        self.schedule.step, self.schedule.spent = state['step'], state['minutes']
        self.group.say(f'{self.name}: goes on after step {self.schedule.step}, {self.schedule.spent:.1f} minutes')


def weights_file(folder: Path, network: str) -> Path:
    """Of a finished training, or of a model's folder."""
    model = folder / f'{network}.safetensors'
    return model if model.is_file() else folder / f'{network}.weights.pt'


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Of a weights.pt or safetensors file, float32."""
    tensors = torch.load(path, map_location='cpu', weights_only=True) if path.suffix == '.pt' else load_file(path)
    return {name: tensor.float() for name, tensor in tensors.items()}


def load_tensors(network: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Into `network`, what was read from `path`. Raises CheckpointMismatchError, with the first difference."""
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointMismatchError(f'{path} is of another network: give another --out or --initial\n'
                                      f'{str(error).splitlines()[1].strip()}') from error


def write_whole(path: Path, state: dict[str, Any]) -> None:
    temporary = path.with_suffix('.part')
    torch.save(state, temporary)
    os.replace(temporary, path)
