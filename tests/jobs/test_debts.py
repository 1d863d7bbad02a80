"""Many sets on one store: their ceilings do not meet on the same members."""

from __future__ import annotations

from collections import Counter
from functools import partial

from poise.jobs.coordinator import Coordinator
from poise.jobs.debts import Debts
from poise.model.ownership import SetRow
from poise.move.executor import put_set, register_member
from poise.stores.memory import MemoryStore

MEMBERS = [f"n{number}" for number in range(40)]


def loads(*, shared: bool) -> list[int]:
    """Plan 30 fresh sets of 55 on 40 members, each by a coordinator of its own."""
    store, debts, found = MemoryStore(lambda: 1000.0), Debts(), Counter[str | None]()
    for number in range(30):
        name = f"set-{number}"
        store.transact(name, partial(put_set, wanted=SetRow(name=name, count=55)))
        for member in MEMBERS:
            store.transact(name, partial(register_member, name=name, member=member, process="p"))
        coordinator = Coordinator(store, "c", debts=debts if shared else None)
        coordinator.cycle(name)
        assert coordinator.cycle(name).written == 0, "a debt moves nothing that is held"
        found.update(row.owner for row in store.transact(name, lambda tx: tx.rows()).values())
    return sorted(found.values())


def test_debt_of_30_sets_on_40_nodes_of_one_store() -> None:
    fair, drifting = loads(shared=True), loads(shared=False)
    assert fair[-1] - fair[0] <= 1
    assert drifting[-1] - drifting[0] > 5
