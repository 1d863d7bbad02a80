"""What the strip says of each step, from what is so; and whom a step meets."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from poise.decide.partition_values import Step as Assign
from poise.decide.partition_values import StepKind
from poise.demo.documents import documents
from poise.demo.names import ORDERS, WORKERS
from poise.demo.steps import STEPS
from poise.demo.taking import take
from poise.demo.telling import Sight, tell
from poise.demo.words import PartSeen, PartState, State, StepName, Taken
from poise.errors import Conflict
from poise.jobs.stored import put_document
from poise.move.executor import apply_plan, lead, register_member
from poise.serve.facade import ItemView, MemberView
from poise.serve.jobs_api import StoreJobs
from poise.stores.base import Transaction
from poise.stores.open import open_store

AT = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def taken(step: StepName, **more: object) -> Taken:
    plain = Taken(step=step, subject="worker-c", at=AT, epochs={"1": 4, "2": 7})
    return msgspec.structs.replace(plain, **more)


def sight(members: dict[str, int], epochs: dict[str, int], *, owner: str | None = "worker-a", **more: float) -> Sight:
    views = {
        name: MemberView(name=name, state="active", load=load, lease_s=more.get("lease_s"))
        for name, load in members.items()
    }
    items = {
        item: ItemView(item=item, state="Assigned", member=owner, epoch=epoch, since=after(more.get("since_s", 5.0)))
        for item, epoch in epochs.items()
    }
    return Sight(views, items)


def part(state: PartState, until_s: float | None = None) -> PartSeen:
    return PartSeen("worker-c", "worker", state, 4711, None if until_s is None else after(until_s))


OLD, NEW = {"1": 4, "2": 7}, {"1": 5, "2": 8}
LOST, EVEN = {"worker-a": 6, "worker-c": 2}, {"worker-a": 4, "worker-c": 4}


@pytest.mark.parametrize(
    ("step", "seen", "who", "now_s", "text", "settled_s", "over"),
    [
        pytest.param(
            taken("kill-worker"),
            sight(LOST, OLD, lease_s=2.4),
            part("down", 16),
            3,
            "worker-c was killed 3 s ago. Its 2 partitions wait for its lease to end in 3 s, then they move.",
            None,
            False,
            id="killed, its lease still runs",
        ),
        pytest.param(
            taken("kill-worker"),
            sight(LOST, {"1": 5, "2": 7}, lease_s=-0.5),
            part("down", 16),
            6,
            "worker-c was killed 6 s ago. Its lease is over: after 1 s of grace its partitions move; "
            "1 of 2 still wait.",
            None,
            False,
            id="killed, in its grace",
        ),
        pytest.param(
            taken("kill-worker"),
            sight({"worker-a": 8}, NEW),
            part("down", 16),
            7,
            "Healed in 5.0 s: the 2 partitions of worker-c have new owners, each at a higher epoch. "
            "worker-c is started again in 9 s.",
            5.0,
            False,
            id="killed and healed",
        ),
        pytest.param(
            taken("kill-worker", settled_s=5.0),
            sight(EVEN, {"1": 9, "2": 9}, since_s=20.0),
            part("running"),
            25,
            "Healed in 5.0 s: the 2 partitions of worker-c have new owners, each at a higher epoch. "
            "worker-c is back and holds 4 again.",
            5.0,
            True,
            id="killed, healed and back: what moves later changes no time",
        ),
        pytest.param(
            taken("kill-worker", settled_s=5.0),
            sight({"worker-a": 8, "worker-c": 0}, NEW),
            part("running"),
            17,
            "Healed in 5.0 s: the 2 partitions of worker-c have new owners, each at a higher epoch. "
            "worker-c is back, and its share is on its way.",
            5.0,
            False,
            id="killed, healed and just back: nobody holds 0 again",
        ),
        pytest.param(
            taken("freeze-worker"),
            sight(LOST, OLD, lease_s=0.2),
            part("frozen", 15),
            6,
            "worker-c is frozen since 6 s and believes that it works. Its 2 partitions wait for its lease to end in "
            "1 s, then they move.",
            None,
            False,
            id="frozen",
        ),
        pytest.param(
            taken("freeze-worker"),
            sight(LOST, NEW),
            part("frozen", 15),
            7,
            "Healed in 5.0 s: the 2 partitions of worker-c have new owners. It does not know yet, and wakes up in "
            "8 s in the middle of its work.",
            5.0,
            False,
            id="frozen and healed",
        ),
        pytest.param(
            taken("freeze-worker", settled_s=5.0, late=2),
            sight(EVEN, NEW),
            part("running"),
            17,
            "Healed in 5.0 s: the 2 partitions of worker-c have new owners. When worker-c woke up, its 2 late writes "
            "carried old epochs, and the sink refused every one. It takes part again with 4.",
            5.0,
            True,
            id="awake again",
        ),
        pytest.param(
            taken("freeze-worker", settled_s=5.0, late=1),
            sight({"worker-a": 8, "worker-c": 0}, NEW),
            part("running"),
            16,
            "Healed in 5.0 s: the 2 partitions of worker-c have new owners. When worker-c woke up, its 1 late write "
            "carried old epochs, and the sink refused every one. It takes part again and waits for its share.",
            5.0,
            False,
            id="only just awake",
        ),
        pytest.param(
            taken("drain-collector", subject="collector-d"),
            sight({"collector-d": 1}, OLD),
            None,
            2,
            "collector-d is drained since 2 s: 1 of its 2 routers are still to leave.",
            None,
            False,
            id="draining",
        ),
        pytest.param(
            taken("drain-collector", subject="collector-d"),
            sight({"collector-d": 0}, NEW, since_s=2.5),
            None,
            4,
            "collector-d is empty after 2.5 s and may be stopped. Each of its 2 routers ended there before it began "
            "elsewhere.",
            2.5,
            True,
            id="drained",
        ),
        pytest.param(
            taken("drain-collector", subject="collector-d", back=True, epochs={}),
            sight({"collector-d": 0}, {}),
            None,
            1,
            "collector-d is back in service and takes routers again.",
            0.0,
            True,
            id="brought back",
        ),
        pytest.param(
            taken("change-weight", subject="worker-c", epochs={}, counts=EVEN, weights=(1, 3)),
            sight(LOST, {}),
            None,
            1,
            "worker-c weighs 3 instead of 1: it has 2 replicas, 4 before; its exact share is 4. 2 of 8 replicas moved.",
            None,
            False,
            id="a weight, not there yet",
        ),
        pytest.param(
            taken("restart-server", subject="server"),
            sight(EVEN, OLD),
            None,
            1,
            "The server ends and starts again. Workers and collectors go on: their leases outlast it.",
            None,
            False,
            id="restarting",
        ),
        pytest.param(
            taken("restart-server", subject="server", back_at=after(1.5)),
            sight(EVEN, OLD),
            None,
            2,
            "The server was restarted in 1.5 s. 2 of 2 partitions kept owner and epoch: nothing was lost, and nothing "
            "moved for it.",
            1.5,
            True,
            id="restarted",
        ),
        pytest.param(
            taken("restart-server", subject="server", back_at=after(9)),
            sight(EVEN, {"1": 4, "2": 8}),
            None,
            9,
            "The server was restarted in 9.0 s. 1 of 2 partitions kept owner and epoch; the others were granted anew, "
            "since leases ended.",
            9.0,
            True,
            id="restarted too late is not called lossless",
        ),
        pytest.param(
            taken("kill-worker", over=True, settled_s=5.0, text="as it was said"),
            sight(LOST, OLD),
            None,
            99,
            "as it was said",
            5.0,
            True,
            id="over stays as it was said",
        ),
    ],
)
def test_a_step_is_told(
    step: Taken, seen: Sight, who: PartSeen | None, now_s: float, text: str, settled_s: float | None, over: bool
) -> None:
    told = tell(step, seen, who, after(now_s))
    assert (told.text, told.settled_s, told.over) == (text, settled_s, over)


def test_an_item_without_an_owner_is_not_healed() -> None:
    told = tell(taken("kill-worker"), sight(LOST, NEW, owner=None, lease_s=-1), part("down", 16), after(6))
    assert told.settled_s is None


def crew(running: int) -> State:
    """Six workers, of which so many run."""
    return State(
        parts=tuple(
            PartSeen(name, "worker", "running" if place < running else "down", 4711 + place)
            for place, name in enumerate(WORKERS)
        )
    )


@pytest.mark.parametrize(
    ("running", "why"),
    [
        pytest.param(4, "Two workers are broken already", id="two are broken"),
        pytest.param(6, "The workers have only just started", id="nobody holds anything yet"),
    ],
)
def test_a_worker_is_not_broken_where_nothing_could_be_seen(running: int, why: str) -> None:
    with closing(open_store("memory:")) as store:
        put_document(store, documents({})[0], AT)
        api = StoreJobs(store, ready=lambda: True)
        with pytest.raises(Conflict, match=why):
            take("kill-worker", api, crew(running), back=False)


def staff(tx: Transaction) -> None:
    """Register everybody, and let two of them hold something."""
    for name in WORKERS:
        register_member(tx, ORDERS, name, name)
    leader = lead(tx, "leader", 10.0)
    assert leader is not None
    seen = {item: row.revision for item, row in tx.rows().items()}
    owners = {"1": "worker-b", "2": "worker-d", "3": "worker-d"}
    steps = [Assign(StepKind.ASSIGN, item, None, who, "first") for item, who in owners.items()]
    apply_plan(tx, ORDERS, leader.term, seen, steps, 1)


def test_the_worker_that_holds_most_is_met() -> None:
    with closing(open_store("memory:")) as store:
        put_document(store, documents({})[0], AT)
        store.transact(ORDERS, staff)
        met = take("freeze-worker", StoreJobs(store, ready=lambda: True), crew(5), back=False)
    assert (met.subject, met.epochs) == ("worker-d", {"2": 1, "3": 1})


def test_every_step_leads_to_a_page_and_says_what_to_watch() -> None:
    assert [step.name for step in STEPS] == [
        "kill-worker",
        "freeze-worker",
        "drain-collector",
        "change-weight",
        "restart-server",
    ]
    assert all(step.page.startswith("/jobs/") and step.does and step.watch for step in STEPS)
