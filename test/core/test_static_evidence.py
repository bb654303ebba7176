"""Evidence of two frames, of which test_static_points shows what it is for."""

import numpy as np

from lightglue_trt_ros.core.static_evidence import CommonMotion, Displacements, StaticEvidence

SIZE = (480, 640)


def test_where_nothing_else_moves_alike_nothing_is_a_patch():
    static = np.random.default_rng(19).uniform((0, 400), (639, 479), (20, 2)).astype(np.float32)
    motion = CommonMotion(np.full((21, 2), (9, 0), np.float32), np.zeros(0, np.intp))
    before = np.concatenate([static, np.float32([[300, 100]])])
    after = before + np.float32((0, 20)) * (np.arange(21) == 20)[:, None].astype(np.float32)
    evidence = StaticEvidence(Displacements(before, after, SIZE, 1.0), motion)
    assert evidence.is_smaller
    assert not evidence.among_fast().any()
