"""Files of tools that list cameras in their own way, in the words of Kalibr's camchain, which `calibration_forms` reads."""

from __future__ import annotations

import re
from contextlib import suppress

from . import exports_of_calibrators, exports_of_datasets, exports_of_devices, exports_of_mapping, opencv_pairs, other_lenses
from .calibration_shapes import flat, named_lists, of_frames, of_nerf, of_parameters, with_focals
from .export_tables import Cameras, Tools, Values, one

_LENSES: Tools = (
    (lambda values: 'sensors' in (values.get('rig') or {}), other_lenses.of_nvidia),
    ({'CameraCalibrations'}.issubset, other_lenses.of_aria),
    ({'poly_parameters', 'affine_parameters'}.issubset, lambda values: {0: other_lenses.of_camodocal(values)}),
    ({'omni_affine', 'distortion_coefficients'}.issubset, one(other_lenses.of_kimera)),
    (lambda values: values.get('type') == 'omni' and 'data' in values['intrinsics'], one(other_lenses.of_svo)),
    ({'Camera.nrpol', 'Camera.a0'}.issubset, lambda values: {0: other_lenses.of_multicol(values)}),
    (lambda values: (values.get('intrinsic') or {}).get('model') == 'radial_poly',
     lambda values: {0: other_lenses.of_woodscape(values)}),
    (lambda values: 'MappingCoefficients' in (values.get('Intrinsics') or values),
     lambda values: {0: other_lenses.of_matlab_fisheye(values.get('Intrinsics') or values)}))
_TOOLS = (*_LENSES, *exports_of_devices.TOOLS, *exports_of_datasets.TOOLS, *exports_of_calibrators.TOOLS,
          *exports_of_mapping.TOOLS, *opencv_pairs.TOOLS)  # those before know a file by more of its keys


def as_chain(values: Values) -> Values:
    """Cameras cam0, cam1 ..., or by name, with Kalibr's keys; `values` themselves where no tool is known that writes such."""
    cameras: Cameras = {}
    with suppress(ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):  # another tool's file
        values = of_nerf(of_frames(flat(of_parameters(values))))
        read = next((read for recognises, read in _TOOLS if recognises(values)), None)
        cameras = {} if read is None else dict(read(values))
    named_cameras = {name if isinstance(name, str) else f'cam{name}': camera for name, camera in cameras.items()}
    if not named_cameras and 'camera.fx' in values:  # as ORB-SLAM's, in slambook's letters
        values = {re.sub('^camera', 'Camera', str(name)): value for name, value in values.items()}
    return named_cameras or with_focals(flat(named_lists(values), 3))
