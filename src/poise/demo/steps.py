"""The five steps of the demo: what each does, where it can be seen, and what to look at there."""

from __future__ import annotations

import msgspec

from poise.demo.names import FLEET, ORDERS, ROUTERS
from poise.demo.words import StepName


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what it does, and what to watch on its page; `back` is on its button where it can be taken back."""

    name: StepName
    button: str
    does: str
    watch: str
    page: str
    back: str = ""


_ORDERS = f"/jobs/PartitionSet/{ORDERS}"
STEPS: tuple[Step, ...] = (
    Step(
        name="kill-worker",
        button="Kill a worker",
        does="One of the six worker processes gets SIGKILL.",
        watch="Nobody takes its partitions before its lease has ended, as it might be alive; then all go at once.",
        page=_ORDERS,
    ),
    Step(
        name="freeze-worker",
        button="Freeze a worker",
        does="One worker stands still for 15 s (SIGSTOP) and believes that it still owns its partitions.",
        watch="Others take them; when it wakes up it writes too late, and every late write is refused.",
        page=_ORDERS,
    ),
    Step(
        name="drain-collector",
        button="Drain a collector",
        does="One of the four collectors is taken out of service.",
        watch="Its routers leave a few at a time, and each ends there before it begins elsewhere.",
        page=f"/jobs/TargetPool/{ROUTERS}",
        back="Bring the collector back",
    ),
    Step(
        name="change-weight",
        button="Change a weight",
        does="One cluster counts three times as much.",
        watch="200 workloads are divided anew: each cluster ends at its exact share, and only what must move does.",
        page=f"/jobs/ReplicaDivision/{FLEET}",
        back="Change the weight back",
    ),
    Step(
        name="restart-server",
        button="Restart the server",
        does="Poise itself ends, and a new process takes over.",
        watch="The page finds it again, and nobody else notices: owners and epochs stay as they were.",
        page=_ORDERS,
    ),
)
BY_NAME: dict[str, Step] = {step.name: step for step in STEPS}
