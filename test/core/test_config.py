"""Settings: every one is checked, and the params file, the dataclasses and the node's parameters are the same."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from lightglue_trt_ros.core.config import FETCHED_MODELS, SHIPPED_MODELS, EngineSpec, MatcherConfig, check_names
from lightglue_trt_ros.utils.errors import ConfigError

PARAMS = Path(__file__).parents[2] / 'config' / 'matcher.yaml'


@pytest.mark.parametrize(('settings', 'words'), [
    ({'image_height': 479}, 'image_height is 479.*multiple of 8.*use 480'), ({'image_width': 8}, 'image_width is 8'),
    ({'max_keypoints': 4096}, r'max_keypoints is 4096.*3840'), ({'max_keypoints': 0}, 'max_keypoints is 0'),
    ({'image_height': 64, 'image_width': 64, 'max_keypoints': 197}, 'takes 1 to 196'),
    ({'precision': 'int8'}, "precision is 'int8': use one of auto, fp32, fp16, fp8"),
    ({'match_threshold': 1.5}, r'match_threshold is 1.5.*\[0.0, 1.0\]'),
    ({'match_threshold': float('nan')}, 'match_threshold is nan'),
    ({'match_threshold': '0.1'}, r"match_threshold is '0.1' \(str\): it must be a number in \[0.0, 1.0\]"),
    ({'max_keypoints': 512.0}, r'max_keypoints is 512.0 \(float\): it must be a whole number in \[1, 3840\]'),
    ({'max_keypoints': True}, r'True \(bool\)'),
    ({'reference': 'first'}, 'previous, keyframe'), ({'max_gap_s': -1.0}, 'max_gap_s is -1'),
    ({'max_gap_s': 0.0}, 'max_gap_s is 0.0'), ({'match_threshold': True}, r'True \(bool\): it must be a number')])
def test_bad_settings_are_refused_with_their_value(settings, words):
    with pytest.raises(ConfigError, match=words):
        MatcherConfig(**settings)


def test_a_misspelt_setting_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'match_treshold': did you mean match_threshold\?"):
        check_names(['match_treshold'], MatcherConfig.__dataclass_fields__)


def test_the_setting_that_weights_replaced_names_it():
    with pytest.raises(ConfigError, match=r"^the setting 'lightglue_weights' is now weights, .*: ours, ours_light \(shipped\)"):
        check_names(['lightglue_weights'], MatcherConfig.__dataclass_fields__)


def test_the_params_file_names_all_weights_that_go_by_a_name():
    comment = next(line for line in PARAMS.read_text().splitlines() if line.strip().startswith('weights:')).partition('#')[2]
    assert [name for name in (*SHIPPED_MODELS, *FETCHED_MODELS) if name not in comment] == []
    assert 'ours, ours_light (shipped)' in comment


def test_an_integer_serves_as_a_float():
    assert MatcherConfig(max_gap_s=2).max_gap_s == 2


def test_engine_names_tell_what_they_are():
    assert EngineSpec(480, 640, 1024, 'fp16').name == '480x640-k1024-fp16'


def test_params_file_lists_every_parameter_with_its_default():
    parameters = pytest.importorskip('lightglue_trt_ros.ros.parameters', reason='rclpy is not installed', exc_type=ImportError)
    listed = yaml.safe_load(PARAMS.read_text())['/**']['ros__parameters']
    defaults = {field.name: field.default for kind in (MatcherConfig, parameters.NodeConfig) for field in dataclasses.fields(kind)}
    assert listed == {name: list(value) if isinstance(value, tuple) else value for name, value in defaults.items()}
