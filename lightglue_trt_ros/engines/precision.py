"""Which precision a machine gets, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..config import PRECISIONS
from ..errors import EngineError

FP8_CAPABILITY = (8, 9)  # Ada; Orin is 8.7
FP8_TENSORRT = 10


@dataclass(frozen=True)
class Decision:
    """The precision of each network, and a sentence that says what decided."""

    extractor: str
    matcher: str
    reason: str


def decide(asked: str, compute_capability: tuple[int, int], tensorrt_version: str, flavour: str, calibrated: bool) -> Decision:
    """The precisions for `asked`: auto, fp32, fp16 or fp8 (the matcher's; the extractor is FP16 then).

    `flavour` is 'tensorrt' or 'tensorrt_rtx'; `calibrated` says that an FP8 matcher exists which passed its quality gate.
    Raises EngineError when fp8 is asked for and cannot be had, before anything is built.
    """
    if asked not in ('auto', *PRECISIONS):
        raise EngineError(f'precision is {asked!r}: use one of auto, {", ".join(PRECISIONS)}')
    if asked in ('fp32', 'fp16'):
        return Decision(asked, asked, f'{asked} was asked for')
    capability = '.'.join(map(str, compute_capability))
    lacking = ''
    if tuple(compute_capability) < FP8_CAPABILITY:
        lacking = f'compute capability {capability} is below {".".join(map(str, FP8_CAPABILITY))}, where FP8 begins'
    elif flavour != 'tensorrt_rtx' and _major(tensorrt_version) < FP8_TENSORRT:
        lacking = f'TensorRT {tensorrt_version} is older than {FP8_TENSORRT}, which FP8 needs'
    if lacking and asked == 'fp8':
        raise EngineError(f'fp8 was asked for, but {lacking}: use fp16 or auto')
    if not lacking and not calibrated:
        if asked == 'fp8':
            raise EngineError('fp8 was asked for, but there is no calibrated FP8 graph of the matcher that passed its gate: '
                              'quantize makes one; or use fp16 or auto')
        lacking = 'no calibrated FP8 matcher passed its gate'
    if lacking:
        return Decision('fp16', 'fp16', f'FP16 for both networks: {lacking}')
    return Decision('fp16', 'fp8', f'extractor FP16, matcher FP8: compute capability {capability}, TensorRT {tensorrt_version} '
                                   'and a calibration that passed its gate')


def _major(version: str) -> int:
    match = re.match(r'\d+', version)
    if match is None:
        raise EngineError(f'TensorRT calls its version {version!r}, which is no version')
    return int(match[0])
