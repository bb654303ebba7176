"""Models: an extractor and the matcher that was trained on its descriptors. They are chosen, checked and named together."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.config import FETCHED_MODELS, SHIPPED_MODELS
from ..core.score_calibration import UNCALIBRATED, ScoreCalibration
from ..utils.errors import ConfigError, WeightsError, did_you_mean
from .architecture import EXTRACTOR, MATCHER, NETWORKS, check_network, descriptors_for, descriptors_of, layers_of
from .weight_store import load_weights, sources_of
from .weights import Weights, read_network

NAMES = (*SHIPPED_MODELS, *FETCHED_MODELS)
DEFAULT = NAMES[0]
SCORES = 'scores.json'  # of a model's folder: its ScoreCalibration


@dataclass(frozen=True)
class ModelIdentity:
    """Identity of a model: whatever is made of it, engines or a calibration, is kept under this."""

    name: str
    extractor_sha256: str
    matcher_sha256: str
    choice: str = field(compare=False)  # the setting `weights` that gives it: its name, or its folder, which may be moved
    score_calibration: ScoreCalibration = field(default=UNCALIBRATED, compare=False)

    def __str__(self) -> str:
        """For people: ours, or mine of /robot/weights."""
        return self.name if self.choice in NAMES else f'{self.name} of {self.choice}'

    @property
    def label(self) -> str:
        """In names of folders: ours, or for weights of one's own mine-1a2b3c4d, with a hash of their checksums."""
        if self.choice in NAMES:
            return self.name
        checksums = hashlib.sha256(f'{self.extractor_sha256} {self.matcher_sha256}'.encode()).hexdigest()
        return f'{re.sub("[^A-Za-z0-9_-]", "_", self.name)[:64]}-{checksums[:8]}'


@dataclass(frozen=True)
class Model:
    """An extractor and its matcher. Raises WeightsError where the matcher's descriptors are not the extractor's."""

    name: str  # what its files say, else their folder's name
    extractor: Weights
    matcher: Weights
    choice: str  # as in ModelIdentity
    score_calibration: ScoreCalibration = UNCALIBRATED

    def __post_init__(self) -> None:
        given, taken = descriptors_of(self.extractor.tensors), descriptors_for(self.matcher.tensors)
        if given != taken:
            raise WeightsError(f'the extractor of {self.name} gives descriptors of {given} numbers ({self.extractor.path}), its '
                               f'matcher takes {taken} ({self.matcher.path}): they are not of one model')

    @property
    def identity(self) -> ModelIdentity:
        return ModelIdentity(self.name, self.extractor.sha256, self.matcher.sha256, self.choice, self.score_calibration)

    @property
    def layers(self) -> int:
        """Of the matcher."""
        return layers_of(self.matcher.tensors)


def load_model(choice: str = DEFAULT, cache: Path | None = None) -> Model:
    """The model that the setting `weights` names: one of NAMES, or a folder with extractor.safetensors and matcher.safetensors.

    Nothing is fetched; `cache` replaces `cache_dir()`. Raises ConfigError where there is no such model, WeightsError where its
    files are missing, damaged, of different models, or not the networks that they should be.
    """
    if choice in SHIPPED_MODELS:
        return _of_folder(shipped_folder(choice), choice)
    if choice in FETCHED_MODELS:
        networks = [load_weights(source.name, cache) for source in sources_of(choice)]
        for network, weights in zip(NETWORKS, networks, strict=True):
            check_network(network, weights.tensors, str(weights.path))
        extractor, matcher = networks
        return Model(choice, extractor, matcher, choice)
    return _of_folder(_own_folder(choice), '')


def identify_model(choice: str = DEFAULT) -> ModelIdentity:
    """The identity of what `load_model` gives. A fetched model need not be there: its checksums are pinned."""
    if choice in FETCHED_MODELS:
        extractor, matcher = sources_of(choice)
        return ModelIdentity(choice, extractor.sha256, matcher.sha256, choice)
    return load_model(choice).identity


def shipped_folder(name: str) -> Path:
    """Where the package has a model of its own."""
    return Path(__file__).parent / 'data' / name


def other_files(choice: str) -> dict[str, Path]:
    """By name the files of a model besides its networks, as its scores; hidden ones are nobody's. A fetched model has none."""
    if choice in FETCHED_MODELS:
        return {}
    folder = shipped_folder(choice) if choice in SHIPPED_MODELS else Path(choice).expanduser().absolute()
    names = {path.relative_to(folder): path for path in sorted(folder.rglob('*')) if path.is_file()}
    return {name.as_posix(): path for name, path in names.items() if name.as_posix() not in map(file_name, NETWORKS)
            and not any(part.startswith('.') for part in name.parts)}


def file_name(network: str) -> str:
    """extractor.safetensors or matcher.safetensors"""
    return f'{network}.safetensors'


def _own_folder(choice: str) -> Path:
    folder = Path(choice).expanduser().absolute()
    if os.sep in choice or (choice and folder.is_dir()):
        return folder
    question = did_you_mean(choice, NAMES) or 'no model is called so.'
    raise ConfigError(f'weights is {choice!r}: {question} There are {", ".join(NAMES)}, or a folder that holds '
                      f'{" and ".join(map(file_name, NETWORKS))}')


def _of_folder(folder: Path, shipped: str) -> Model:
    """`shipped`: the model must be the package's own of this name; empty: it is somebody's."""
    advice = 'install the package again' if shipped else 'replace it'
    if missing := [file_name(network) for network in NETWORKS if not (folder / file_name(network)).is_file()]:
        raise WeightsError(f'{folder} has no {" and no ".join(missing)}: '
                           + (advice if shipped else 'the folder of a model holds both networks'))
    extractor, matcher = (read_network(folder / file_name(network), network, advice) for network in NETWORKS)
    names = [each.metadata.get('pair', '') for each in (extractor, matcher)]
    if names[0] != names[1]:
        of_extractor, of_matcher = (name or 'no model that it names' for name in names)
        raise WeightsError(f'{extractor.path} is the {EXTRACTOR} of {of_extractor}, {matcher.path} the {MATCHER} of {of_matcher}: '
                           'they were not trained together; take both from one model')
    for each in (extractor, matcher) if shipped else ():
        checksum = each.metadata.get('content_sha256')
        if names[0] != shipped or not checksum:
            raise WeightsError(f'{each.path} is of the model {names[0] or "without a name"}, with {"a" if checksum else "no"} '
                               f'checksum of its content: {advice}')
    return Model(names[0] or folder.name, extractor, matcher, shipped or str(folder), _read_scores(folder / SCORES, matcher))


def _calibration(record: Any) -> ScoreCalibration:
    """Raises ValueError, KeyError, TypeError."""
    a, b = (float(record[name]) for name in ('a', 'b'))
    if not (0 < a < math.inf and 0 < b < math.inf):
        raise ValueError(f'a is {a}, b is {b}')
    return ScoreCalibration(a, b)


def _read_scores(path: Path, matcher: Weights) -> ScoreCalibration:
    """The default without a file. Raises WeightsError where it is damaged, or of another matcher."""
    remedy = 'fit it again (python -m training.scores), or remove it and have raw scores'
    try:
        record = json.loads(path.read_bytes())
        calibration, of = _calibration(record), record['matcher_sha256']
        before_layers = record.get('before_layers')  # earlier files have that of exit 0 alone
        curves = record.get('exits', {}) if before_layers is None else {0: before_layers}
        exits = {int(layers): _calibration(each) for layers, each in curves.items()}
    except FileNotFoundError:
        return UNCALIBRATED
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f'{path} is damaged ({error!r}): {remedy}') from error
    if of != matcher.sha256:
        raise WeightsError(f'{path} was fitted to the matcher {of}, this one is {matcher.sha256}: {remedy}')
    return replace(calibration, exits=exits)
