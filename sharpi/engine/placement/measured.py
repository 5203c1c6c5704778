"""What plans know by measurement: this machine's rates, and how often a model's experts were found.

`measured_rates` measures what is not kept; a run only reads what is. Both then expect the same
speed, with which a run compares its own.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sharpi.gguf.header import is_routed
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.info import Rates
from sharpi.hardware.kept_rates import is_busy, keep, kept_rate, known_figures, recent_rates
from sharpi.model.config import ModelConfig
from sharpi.model.tensors import SUPPORTED_TYPES
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.settings import EngineSettings
from sharpi.tiers.speed import DISK_READ, HIT_RANGE, RAM_READ, curve

if TYPE_CHECKING:
    from sharpi.experts.stats.stats import ExpertStats

PRODUCT_BYTES = 128 << 20  # of the matrix that is multiplied: more than caches hold
_LEAST_SHARE = 0.05  # of a token's bytes, for a quant type to be measured
LEAST_TOKENS = 32  # after which a run's speed and hits tell something
_SHARED_LOAD = 1.5  # of the cores: other programs run beside the model

_Measured = tuple[str, Callable[[], float]]  # the name of a rate, and what measures it


def measured_rates(
    sources: Iterable[str], file: GgufFile, model: ModelConfig, settings: EngineSettings
) -> Rates:
    """Returns the rates of `sources`, RAM and disk, and measures those that are not kept."""
    return _rates(sources, file, model, settings, lambda each: kept_rate(*each))


def known_rates(file: GgufFile, model: ModelConfig, settings: EngineSettings) -> Rates:
    """Returns the rates that are kept; measures nothing."""
    kept = recent_rates()
    return _rates((RAM_READ, DISK_READ), file, model, settings, lambda each: kept.get(each[0]))


def _rates(
    sources: Iterable[str],
    file: GgufFile,
    model: ModelConfig,
    settings: EngineSettings,
    rate_of: Callable[[_Measured], float | None],
) -> Rates:
    ram = disk = lone = None
    if RAM_READ in sources:
        shares = _type_shares(file, model)
        rates = {kind: rate_of(_product(kind, file, settings)) for kind in shares}
        ram = _joint_rate(shares, rates)
    if DISK_READ in sources:
        disk, lone = rate_of(_disk(file.parts[0])), rate_of(_disk(file.parts[0], 1))
    return Rates(ram_read=ram, disk_read=disk, lone_read=lone)


def _type_shares(file: GgufFile, model: ModelConfig) -> dict[QuantType, float]:
    """Returns the shares of the quant types in what a token reads, without small ones."""
    counts: Counter[QuantType] = Counter()
    for name, tensor in file.tensors.items():
        is_looked_up = name == "token_embd.weight" and "output.weight" in file.tensors
        if tensor.quant_type not in SUPPORTED_TYPES or is_looked_up:
            continue
        is_part = model.is_moe and is_routed(name)
        share = model.num_experts_per_token / model.num_experts if is_part else 1
        counts[tensor.quant_type] += round(tensor.num_bytes * share)
    least = _LEAST_SHARE * counts.total()
    large = {kind: count for kind, count in counts.items() if count >= least}
    return {kind: count / sum(large.values()) for kind, count in large.items()}


def _joint_rate(
    shares: dict[QuantType, float], rates: dict[QuantType, float | None]
) -> float | None:
    seconds = 0.0
    for kind, share in shares.items():
        rate = rates[kind]
        if rate is None:
            return None
        seconds += share / rate
    return 1 / seconds if seconds else None


def _product(kind: QuantType, file: GgufFile, settings: EngineSettings) -> _Measured:
    threads, isa, rounding = settings.num_threads, settings.instruction_set, settings.rounding
    size = min(PRODUCT_BYTES, file.num_bytes)

    def measure() -> float:
        from sharpi.hardware.product_rate import measure_product

        return measure_product(kind, threads, isa, rounding, size)

    return f"{kind.name} {rounding}, {isa}, {threads} threads, {size >> 20} MiB", measure


def _disk(path: Path, in_flight: int | None = None) -> _Measured:
    def measure() -> float:
        from sharpi.hardware import rates

        if in_flight is None:
            return rates.measure_disk(path).bytes_per_second
        return rates.measure_disk(path, in_flight=in_flight).bytes_per_second

    name = f"disk {path.stat().st_dev}"
    return (name if in_flight is None else f"{name}, {in_flight} in flight"), measure


def known_misses(file: GgufFile) -> dict[float, float]:
    """Returns the misses of earlier runs by the share of slots; see `hit_rate` of the planner."""
    found = known_figures(_misses_name(file))
    percents = {int(percent): misses for percent, misses in found.items()}
    return {percent / 100: misses for percent, misses in percents.items() if percent < 100}


def keep_hits(file: GgufFile, plan: TierPlan, stats: "ExpertStats") -> None:
    """Keeps how often a run found its experts in slots in RAM, for later plans."""
    shares = [layer.num_resident / layer.num_experts for layer in plan.layers if layer.num_experts]
    share, hits = sum(shares) / len(shares), decode_hit_rate(stats)
    if hits is not None and stats.num_tokens >= LEAST_TOKENS and share < 1:
        keep(f"{_misses_name(file)}{int(100 * share)}", (1 - hits) / (1 - curve(share)))


def decode_hit_rate(stats: "ExpertStats | None") -> float | None:
    """Returns the hit rate of decoded tokens, 0 to 1; None without any."""
    if stats is None:
        return None
    counts = [layer.decode for layer in stats.layers]
    accesses = sum(each.accesses for each in counts)
    return sum(each.hits for each in counts) / accesses if accesses else None


def _misses_name(file: GgufFile) -> str:
    return f"misses of {file.parts[0].name}, {file.num_bytes} bytes, by percent of slots: "


def against_plan(plan: TierPlan, tokens_per_second: float, hit_rate: float | None) -> str | None:
    """Returns a line that compares a run with its plan; None if the plan's rates are not kept."""
    speed = plan.speed
    if not speed.is_measured:
        return None
    least, most = speed.least_tokens_per_second, speed.tokens_per_second
    planned, found = f"{least:.1f} to {most:.1f} tokens/s", f"{tokens_per_second:.1f}"
    if hit_rate is not None:
        low, high = (100 * (speed.hit_rate + change) for change in (-HIT_RANGE, HIT_RANGE))
        is_known, likely = speed.is_hit_rate_known, f"about {100 * speed.hit_rate:.0f}"
        known = f"{max(0.0, low):.0f} to {min(100.0, high):.0f}"
        planned += f", {known if is_known else likely} % hits"
        found += f", {100 * hit_rate:.1f} %"
    is_shared = is_busy(_SHARED_LOAD)
    return f"plan {planned}; this run {found}" + (", beside busy programs" if is_shared else "")
