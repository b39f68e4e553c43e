"""What one replica can do, from the facts of its card and model: memory, speeds, cold start, CPU.

`infscale gpu` prints the figures, `infscale_sim.replica` runs on them. Cards, models and profiles are YAML files in
`profiles/`; a user's own profile is such a file too. A profile names a card and a model, or holds their facts itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from infscale import checks
from infscale.checks import Place
from infscale.errors import ConfigError
from infscale.yaml_file import load_yaml

PROFILES = Path(__file__).parent / "profiles"
DEFAULT = "h100-8b"
_CATALOGUES = ("gpus", "models")
PREFILLS = ("stall", "chunked")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card.

    Attributes:
        memory_gb, bandwidth_gb_per_s, dense_tflops: of the data sheet; TFLOPS in 16 bits without sparsity.
        bandwidth_efficiency: the share of the bandwidth that decode reaches.
        mfu: the share of the compute that prefill reaches (model FLOPs utilisation).
    """

    memory_gb: float
    bandwidth_gb_per_s: float
    dense_tflops: float
    bandwidth_efficiency: float = 0.7
    mfu: float = 0.4


@dataclass(frozen=True, slots=True)
class Model:
    """One model.

    Attributes:
        billion_parameters: all of them.
        billion_active: those that one token uses, fewer in a mixture of experts; None: all.
        layers, kv_heads, head_dim: the shape of its KV cache.
    """

    billion_parameters: float
    layers: int
    kv_heads: int
    head_dim: int
    billion_active: float | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """One replica: its cards, its model, and how the engine is set.

    Attributes:
        name: the profile's.
        tensor_parallel: cards per replica; memory, bandwidth and compute add up.
        bytes_per_parameter: 2 for FP16 and BF16, 1 for FP8 and INT8, 0.5 for INT4.
        kv_bytes_per_value: 2, or 1 for an FP8 KV cache.
        usable_memory, reserve_gb: share of each card that the engine takes, and what of it is neither weights nor KV.
        slots: sequences that may run at once.
        prefill: `stall`, or `chunked` with at most `step_tokens` tokens per step, decode included.
        pull_s, load_gb_per_s, warm_up_s: the parts of a cold start.
        cpu_idle, cpu_busy, cpu_per_running, cpu_request: cores.
    """

    name: str
    gpu: Gpu
    model: Model
    tensor_parallel: int = 1
    bytes_per_parameter: float = 2.0
    kv_bytes_per_value: float = 2.0
    usable_memory: float = 0.9
    reserve_gb: float = 4.0
    slots: int = 64
    prefill: str = "stall"
    step_tokens: int = 2048
    pull_s: float = 45.0
    load_gb_per_s: float = 1.0
    warm_up_s: float = 30.0
    cpu_idle: float = 0.2
    cpu_busy: float = 1.0
    cpu_per_running: float = 0.01
    cpu_request: float = 4.0

    @property
    def weights_gb(self) -> float:
        """The weights, over all cards."""
        return self.model.billion_parameters * self.bytes_per_parameter

    @property
    def kv_bytes_per_token(self) -> float:
        """K and V of every layer and KV head."""
        model = self.model
        return 2 * model.layers * model.kv_heads * model.head_dim * self.kv_bytes_per_value

    @property
    def usable_gb(self) -> float:
        """The memory for weights and KV, over all cards."""
        return self.tensor_parallel * (self.gpu.memory_gb * self.usable_memory - self.reserve_gb)

    @property
    def kv_gb(self) -> float:
        """The memory left for KV."""
        return self.usable_gb - self.weights_gb

    @property
    def kv_tokens(self) -> int:
        """How many tokens of context that holds."""
        return math.floor(self.kv_gb * 1e9 / self.kv_bytes_per_token)

    @property
    def _bytes_per_s(self) -> float:
        return self.tensor_parallel * self.gpu.bandwidth_gb_per_s * 1e9 * self.gpu.bandwidth_efficiency

    @property
    def weights_step_s(self) -> float:
        """The time to read the weights once: a decode step without any context.

        A batch of some dozens touches every expert of a mixture, so all weights count; a smaller batch is faster.
        """
        return self.weights_gb * 1e9 / self._bytes_per_s

    @property
    def token_step_s(self) -> float:
        """What one token of context adds to a decode step."""
        return self.kv_bytes_per_token / self._bytes_per_s

    @property
    def prefill_token_s(self) -> float:
        """The time to prefill one prompt token: 2 FLOPs per active parameter."""
        active = self.model.billion_active or self.model.billion_parameters
        return 2e9 * active / (self.tensor_parallel * self.gpu.dense_tflops * 1e12 * self.gpu.mfu)

    @property
    def cold_start_s(self) -> float:
        """Image pull, weight load and warm-up."""
        return self.pull_s + self.weights_gb / self.load_gb_per_s + self.warm_up_s

    def decode_step_s(self, batch: int, context_tokens: float) -> float:
        """One decode step of `batch` sequences with so many tokens of context each."""
        return self.weights_step_s + batch * context_tokens * self.token_step_s

    def cpu_ratio(self, running: float, busy: float = 1.0) -> float:
        """CPU over the request: `running` sequences on the mean, busy for that share of the time."""
        return (self.cpu_idle + self.cpu_busy * busy + self.cpu_per_running * running) / self.cpu_request


def profile_names() -> list[str]:
    """The built-in profiles."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml") if path.stem not in _CATALOGUES)


def load_profile(name: str) -> Hardware:
    """A built-in profile by its name, or a user's own by its file.

    Raises:
        ConfigError: there is no such profile, or the file does not describe one; weights that do not fit included.
    """
    if not name.endswith((".yaml", ".yml")):
        if name not in profile_names():
            known = checks.suggestion(name, profile_names())
            raise ConfigError(f"no such profile {name!r}{known}; or give a file, as my.yaml")
        path = str(PROFILES / f"{name}.yaml")
        return profile_of(load_yaml(path), Place(f"profile {name}"), name)
    return profile_of(load_yaml(name), Place(name), Path(name).stem)


def profile_of(value: object, place: Place, name: str, base: Hardware | None = None) -> Hardware:
    """The profile that a mapping holds; with `base`, its keys take the place of the base's.

    Raises:
        ConfigError: with the place of what is wrong.
    """
    known = [field.name for field in fields(Hardware) if field.name != "name"]
    mapping = checks.mapping(value, place, known)
    given: dict[str, Any] = {}
    if base is not None:
        given = {key: getattr(base, key) for key in known}
    for key, item in mapping.items():
        at = place.key(key)
        if key == "gpu":
            given[key] = _part(item, at, Gpu, "gpus")
        elif key == "model":
            given[key] = _part(item, at, Model, "models")
        elif key == "prefill":
            given[key] = choice(item, at, PREFILLS)
        else:
            given[key] = _number(item, at, whole=key in ("tensor_parallel", "slots", "step_tokens"))
    for key in ("gpu", "model"):
        if key not in given:
            raise place.error(f"{key} is missing: expected a name or its facts")
    hardware = Hardware(name, **given)
    _check(hardware, place)
    return hardware


def choice(value: object, place: Place, allowed: Collection[str]) -> str:
    """One of several words."""
    word = checks.text(value, place)
    if word not in allowed:
        raise place.error(f"no such choice {word!r}{checks.suggestion(word, allowed)}")
    return word


def _part(value: object, place: Place, kind: type[T], catalogue: str) -> T:
    """A card or model by its name in the catalogue, or with its facts."""
    if isinstance(value, str):
        entries = _catalogue(catalogue)
        if value not in entries:
            raise place.error(f"no such name {value!r}{checks.suggestion(value, entries)}; or give its facts")
        value = entries[value]
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # Gpu or Model
    mapping = checks.mapping(value, place, known)
    for key, field in known.items():
        if key not in mapping and field.default is MISSING:
            raise place.error(f"{key} is missing")
    whole = ("layers", "kv_heads", "head_dim")
    return kind(**{key: _number(item, place.key(key), whole=key in whole) for key, item in mapping.items()})


@cache
def _catalogue(name: str) -> Mapping[str, object]:
    return load_yaml(str(PROFILES / f"{name}.yaml"))


def _number(value: object, place: Place, *, whole: bool) -> float:
    number = checks.number(value, place, at_least=0)
    if whole and (number < 1 or not number.is_integer()):
        raise place.error(f"expected a whole number from 1 up, got {number:g}")
    return int(number) if whole else number


def _check(hardware: Hardware, place: Place) -> None:
    for key in ("bytes_per_parameter", "kv_bytes_per_value", "load_gb_per_s", "cpu_request"):
        if getattr(hardware, key) <= 0:
            raise place.key(key).error("expected a number above 0")
    for key in ("bandwidth_gb_per_s", "dense_tflops", "bandwidth_efficiency", "mfu"):
        if getattr(hardware.gpu, key) <= 0:
            raise place.key("gpu").key(key).error("expected a number above 0")
    shares = (
        (place.key("usable_memory"), hardware.usable_memory),
        (place.key("gpu").key("bandwidth_efficiency"), hardware.gpu.bandwidth_efficiency),
        (place.key("gpu").key("mfu"), hardware.gpu.mfu),
    )
    for at, share in shares:
        if share > 1:
            raise at.error(f"expected a share up to 1, got {share:g}")
    if hardware.kv_tokens < 1:
        cards = f"{hardware.tensor_parallel} x " if hardware.tensor_parallel > 1 else ""
        raise place.error(
            f"the weights do not fit: {hardware.weights_gb:.1f} GB of weights, {hardware.usable_gb:.1f} GB usable of "
            f"{cards}{hardware.gpu.memory_gb:g} GB ({hardware.usable_memory:.0%}, less {hardware.reserve_gb:g} GB); "
            "raise tensor_parallel or lower bytes_per_parameter"
        )
    if hardware.prefill == "chunked" and hardware.step_tokens <= hardware.slots:
        raise place.key("step_tokens").error(
            f"{hardware.step_tokens} tokens per step leave no room for prefill beside {hardware.slots} slots; "
            "expected more tokens than slots"
        )
