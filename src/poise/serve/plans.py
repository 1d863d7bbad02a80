"""Plans as the API answers them: the entry of `poise plan -o json`, and what its printed form says beyond it."""

from __future__ import annotations

from msgspec import field

from poise.errors import BrokenPlan
from poise.jobs.entries import CapacityEntry, DivisionEntry, ItemsEntry, ItemsView, Planned


class ItemsPlan(ItemsEntry, frozen=True, kw_only=True):
    """The plan of items, with what people read around it."""

    pending: bool
    notes: list[str] = field(default_factory=list)
    view: ItemsView | None = None


class DivisionPlan(DivisionEntry, frozen=True, kw_only=True):
    """The plan of a ReplicaDivision, with what people read around it."""

    pending: bool
    notes: list[str] = field(default_factory=list)


class CapacityPlan(CapacityEntry, frozen=True, kw_only=True):
    """The plan of a CapacitySplit, with what people read around it."""

    pending: bool
    notes: list[str] = field(default_factory=list)


def shown_plan(planned: Planned) -> ItemsPlan | DivisionPlan | CapacityPlan:
    """Show a plan; one that the independent checker refuses is never shown."""
    if planned.faults:
        raise BrokenPlan("; ".join(planned.faults))
    entry = planned.entry
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    match entry:
        case ItemsEntry():
            return ItemsPlan(**fields, pending=planned.pending, notes=planned.notes, view=planned.view)
        case DivisionEntry():
            return DivisionPlan(**fields, pending=planned.pending, notes=planned.notes)
        case CapacityEntry():
            return CapacityPlan(**fields, pending=planned.pending, notes=planned.notes)
