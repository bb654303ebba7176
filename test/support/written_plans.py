"""The graphs of an engine set, which the emulated TensorRT runs as plans."""

from __future__ import annotations

from lightglue_trt_ros.core.config import EngineSpec
from lightglue_trt_ros.core.early_exit import EarlyExits
from lightglue_trt_ros.networks.lightglue import lightglue_engines
from lightglue_trt_ros.networks.models import Model
from lightglue_trt_ros.networks.superpoint import superpoint_maps


def written_plans(spec: EngineSpec, model: Model, early_exits: EarlyExits, *, own_attention: bool = False) -> dict[str, bytes]:
    graphs = {'extractor': superpoint_maps(spec, model.extractor),
              **lightglue_engines(spec, model.matcher, early_exits, own_attention=own_attention)}
    return {name: graph.SerializeToString() for name, graph in graphs.items()}
