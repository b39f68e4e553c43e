"""The engines that infscale reads, one profile a file; the order is that of detection.

A page may mention several (a Triton server with vLLM's backend republishes `vllm:` names): the first whose gauges are
there is taken, so engines come before the servers around them.
"""

from __future__ import annotations

from typing import Dict

from infscale.engines.aphrodite import APHRODITE
from infscale.engines.dynamo import DYNAMO
from infscale.engines.llamacpp import LLAMACPP
from infscale.engines.lmdeploy import LMDEPLOY
from infscale.engines.mistralrs import MISTRALRS
from infscale.engines.profile import Hints, Metric, Profile, metric
from infscale.engines.sglang import SGLANG
from infscale.engines.tgi import TGI
from infscale.engines.triton import TRITON
from infscale.engines.trtllm import TRTLLM
from infscale.engines.vllm import VLLM

PROFILES: Dict[str, Profile] = {
    profile.name: profile
    for profile in (VLLM, SGLANG, LLAMACPP, LMDEPLOY, TRTLLM, TGI, MISTRALRS, APHRODITE, TRITON, DYNAMO)
}

__all__ = ["PROFILES", "Hints", "Metric", "Profile", "metric"]
