"""The page and the text of a board's check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .page import rendered

TEMPLATE = Path(__file__).with_name('board.html.jinja')
STAGES = ('extract', 'match', 'place', 'together')


def board_page(board: dict[str, Any]) -> bytes:
    """One HTML file of the document that is board.json."""
    return rendered(TEMPLATE, board=board, verdict=verdict(board), notes=notes(board), predicted=_predicted(board),
                    stages=STAGES).encode()


def board_text(board: dict[str, Any]) -> bytes:
    """What the issue template asks for, as Markdown."""
    lines = [f'**Board and power mode**: {board["name"]}{", " + board["power_mode"] if board["power_mode"] else ""}', '',
             f'**Machine**: {board["machine"]}; lightglue_trt_ros {board["version"]}; weights {board["weights"]}', '',
             verdict(board), '', *(f'- {note}' for note in notes(board)), '',
             '| shape | frame ms | p99 | GPU ms | layers | built in s | GPU MiB |', '|---|---|---|---|---|---|---|']
    for shape in board['shapes']:
        frame, gpu = shape['stages_ms']['frame'], shape['stages_ms'].get('gpu')
        cells = [shape['name'], frame[0], frame[2], gpu[0] if gpu else '-', shape['layers'],
                 *('-' if shape[key] is None else shape[key] for key in ('build_s', 'device_mib'))]
        lines.append(f'| {" | ".join(map(str, cells))} |')
    return '\n'.join([*lines, '', 'board.json is attached.', '']).encode()


def verdict(board: dict[str, Any]) -> str:
    """Whether the board is fast enough and right, in a sentence."""
    main = board['shapes'][board['main']]
    wrong = [shape['name'] for shape in board['shapes'] if shape['disagreements']]
    if wrong:
        return f'The engines of {", ".join(wrong)} differ from FP32 on the CPU by more than is allowed: do not use them.'
    frame = main['stages_ms']['frame']
    budget = 1e3 / board['hz']
    keeps = 'keeps up with' if frame[2] <= budget else 'is too slow for'
    return (f'{main["name"]} {keeps} {board["hz"]:g} Hz: a frame takes {frame[0]:g} ms, p99 {frame[2]:g} ms, of {budget:.1f} ms.')


def notes(board: dict[str, Any]) -> list[str]:
    """What is wrong or was not run, a line each."""
    found = [f'{shape["name"]}: {line}' for shape in board['shapes'] for line in shape['disagreements'] or ()]
    node = board['node']
    if node is None:
        found.append(f'The node was not run: {board["node_reason"]}')
    elif node['lost']:
        found.append(f'The node lost {node["lost"]} of {round(node["hz"] * node["seconds"])} images.')
    return found + [f'{each["name"]} was not run: {each["reason"]}' for each in board['left_out']]


def _predicted(board: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Rows of the table: GPU, predicted or measured, and a cell for each of STAGES."""
    measured = board['shapes'][board['main']]['device_ms']
    if not board['prediction'] or not measured:
        return []
    rows = [('this board', 'measured', [f'{measured[stage][0]:.2f}' for stage in STAGES])]
    return rows + [(name, 'predicted', [f'{each[stage]["estimate_ms"]:.1f}' for stage in STAGES])
                   for name, each in board['prediction'].items()]
