"""TargetPool: telemetry targets on collector pods."""

from __future__ import annotations

from poise.errors import Fault, InvalidSpec
from poise.jobs.items import ItemFacts
from poise.model import TargetPool


def facts(pool: TargetPool) -> ItemFacts:
    """Read the facts of a pool: pods from its endpoints (else as last seen), targets from its list."""
    spec, seen = pool.spec, {member.name: member.state for member in pool.status.members}
    endpoints = spec.pods.endpoints
    names = [endpoint.name for endpoint in endpoints] if endpoints is not None else list(seen)
    if spec.targets.listed is None:
        source = "http" if spec.targets.http else "configMap" if spec.targets.config_map else "file"
        raise InvalidSpec(Fault(f"$.spec.targets.{source}", "cannot be read offline: give a list or a file"))
    pool_wide = {} if spec.capacity is None else dict.fromkeys(names, spec.capacity)
    own = {each.name: each.capacity for each in endpoints or [] if each.capacity is not None}
    return ItemFacts(
        kind=pool.kind,
        name=pool.metadata.name,
        noun="pod",
        policy=spec.policy,
        items=[target.name for target in spec.targets.listed],
        members=[name for name in names if seen.get(name) != "gone"],
        draining=[name for name in names if seen.get(name) == "draining"],
        known=[name for name, state in seen.items() if state != "gone"],
        current=dict(pool.status.assignment),
        capacity=pool_wide | own,
        weights={each.name: each.weight for each in endpoints or [] if each.weight is not None},
    )
