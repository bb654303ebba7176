"""Draws what a training logged:  python -m training.curves RUN  writes RUN/curves.png."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from training.commands import command

LOSSES = {'extractor': ('detector', 'placement', 'descriptor', 'reliability'), 'matcher': ('assignment',)}
SHARES = {'extractor': ('repeatability', 'distinct'), 'matcher': ('precision', 'recall', 'agreement')}


def read_log(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def draw(run: Path) -> Path:
    """Losses and shares of both networks over the minutes. Raises FileNotFoundError where nothing was logged."""
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    logs = {name: rows for name in LOSSES if (rows := read_log(run / f'{name}.log.jsonl'))}
    if not logs:
        raise FileNotFoundError(f'{run} has no extractor.log.jsonl and no matcher.log.jsonl')
    figure, axes = plt.subplots(len(logs), 2, figsize=(11, 3.6 * len(logs)), squeeze=False, layout='constrained')
    for (name, rows), (losses, shares) in zip(logs.items(), axes, strict=True):
        for axis, fields, title in ((losses, LOSSES[name], 'loss'), (shares, SHARES[name], 'share')):
            for field in fields:
                axis.plot([row['minutes'] for row in rows], [row[field] for row in rows], label=field)
            axis.set(title=f'{name}: {title}', xlabel=f'minutes ({rows[-1]["step"]:,.0f} steps)')
            axis.grid(alpha=0.3)
            axis.legend()
        losses.set_yscale('log')
        shares.set_ylim(0, 1)
    path = run / 'curves.png'
    temporary = path.with_suffix('.part.png')
    figure.savefig(temporary, dpi=110)
    temporary.replace(path)
    plt.close(figure)
    return path


@command('curves', FileNotFoundError)
def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog='training.curves', description=__doc__)
    p.add_argument('run', type=Path, help='what training.train wrote')
    print(draw(p.parse_args(arguments).run))
    return 0


if __name__ == '__main__':
    sys.exit(main())
