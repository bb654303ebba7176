"""Graphs that have been written, kept in the user's cache; a start that does not find its own there has them written.

That is done in a process of its own: who runs networks imports neither spox nor onnx, and never holds what writing them takes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zipfile
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from ..core.config import EngineSpec
from ..core.early_exit import EarlyExits
from ..utils.errors import EngineError
from ..utils.files import write_whole
from ..utils.processes import called_elsewhere
from .architecture import EXTRACTOR
from .fp8_calibration import Calibration
from .models import Model
from .weight_store import CACHE_VARIABLE, cache_dir
from .weights import content_sha256

KEEP = int(os.environ.get('LIGHTGLUE_TRT_KEPT_GRAPHS', '4'))  # files, those used last: 53 MB each for the published widths in FP32
_ROOM = Path(__file__).parent
_WRITERS = ('architecture', 'e4m3', 'engine_tensors', 'fp8_calibration', 'fp8_rounding', 'graph_cache', 'lightglue', 'superpoint',
            'typed_onnx', 'weight_folding')
CODE = (*(_ROOM / f'{name}.py' for name in _WRITERS), _ROOM.parent / 'core' / 'early_exit.py')

logger = logging.getLogger(__name__)


def written_graphs(spec: EngineSpec, model: Model, early_exits: EarlyExits,
                   calibration: Calibration | None = None) -> dict[str, bytes]:
    """The extractor's graph and the matcher's by the names of `early_exits`, as ONNX files hold them.

    They lie in `cache_dir()`/graphs in one file, named after the hash of what they are made from: the code that writes them,
    tensors, checksums, spec, stages and calibration. A file that is damaged is written anew; a cache that cannot be written is
    done without, with a warning. Raises as `write_graphs` does.
    """
    parts = (code_sha256(), spec, early_exits, model.extractor.sha256, content_sha256(model.extractor.tensors),
             model.matcher.sha256, content_sha256(model.matcher.tensors), None if calibration is None else calibration.sha256)
    path = cache_dir() / 'graphs' / f'{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.zip'
    names = (EXTRACTOR, *early_exits.graphs())
    with suppress(OSError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        graphs = {name: archive.read(name) for name in names}  # each with its checksum
        path.touch()
        return graphs
    logger.info(f'writing the ONNX graphs of {model.identity} for {spec} into {path.parent}, once for this version')
    graphs = called_elsewhere(write_graphs, spec, model, early_exits, calibration)
    packed = BytesIO()
    with zipfile.ZipFile(packed, 'w') as archive:
        for name, graph in graphs.items():
            archive.writestr(name, graph)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, packed.getvalue())
    except OSError as error:
        logger.warning(f'{path.parent} cannot be written ({error.strerror}): each start writes the graphs again, which takes '
                       f'seconds; make room there, or set {CACHE_VARIABLE} to another folder')
        return graphs
    with suppress(OSError):
        for old in sorted(path.parent.glob('*.zip'), key=lambda file: file.stat().st_mtime)[:-KEEP]:
            old.unlink()
    return graphs


def write_graphs(spec: EngineSpec, model: Model, early_exits: EarlyExits,
                 calibration: Calibration | None = None) -> dict[str, bytes]:
    """The same, written here and now. Raises as `superpoint` and `lightglue_stages` do, EngineError where a library is missing."""
    try:
        from .lightglue import lightglue_stages
        from .superpoint import superpoint
    except ImportError as error:
        raise EngineError(f'a first start with new settings writes graphs, and cannot ({error}): pip install onnx ml_dtypes spox'
                          ) from error
    graphs = {EXTRACTOR: superpoint(spec, model.extractor),
              **lightglue_stages(spec, model.matcher, early_exits, calibration=calibration)}
    return {name: graphs.pop(name).SerializeToString() for name in list(graphs)}  # each goes when it is serialised


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Of the code that writes graphs, hexadecimal: what was made by other code may hold other networks."""
    return hashlib.sha256(b''.join(path.read_bytes() for path in CODE)).hexdigest()
