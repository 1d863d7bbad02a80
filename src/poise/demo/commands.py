"""The commands that do in another terminal what the buttons of the strip do."""

from __future__ import annotations

from collections.abc import Callable, Collection

from poise.demo.documents import CLUSTERS, RISEN, RISING
from poise.demo.names import FLEET, ROUTERS
from poise.demo.supervisor import FREEZE_S
from poise.demo.taking import POOL, chosen_collector, chosen_worker, drained_collectors
from poise.demo.words import State, StepName
from poise.errors import PoiseError
from poise.serve.facade import JobsApi


def commands(api: JobsApi, state: State, back: Collection[StepName], server_pid: int) -> dict[StepName, str]:
    """Give the command of each step as it would be taken now; `back` are those that would be taken back.

    One that cannot be taken now has none.
    """
    makers: dict[StepName, Callable[[], str]] = {
        "kill-worker": lambda: f"kill -9 {_worker_pid(api, state)}",
        "freeze-worker": lambda: _freeze(_worker_pid(api, state)),
        "drain-collector": lambda: _drain(api, "drain-collector" in back),
        "change-weight": lambda: _weigh("change-weight" in back),
        "restart-server": lambda: f"kill {server_pid}",
    }
    return {step: text for step, make in makers.items() if (text := _made(make))}


def _made(make: Callable[[], str]) -> str:
    try:
        return make()
    except PoiseError:
        return ""


def _worker_pid(api: JobsApi, state: State) -> int:
    name = chosen_worker(api, state)
    return next(part.pid for part in state.parts if part.name == name)


def _freeze(pid: int) -> str:
    return f"kill -STOP {pid}; sleep {FREEZE_S:.0f}; kill -CONT {pid}"


def _drain(api: JobsApi, back: bool) -> str:
    members = api.members(POOL, ROUTERS)
    names = drained_collectors(members) if back else [chosen_collector(members)]
    return "; ".join(f"poise {'undrain' if back else 'drain'} {name} --job {ROUTERS}" for name in names)


def _weigh(back: bool) -> str:
    """Change the one line of the document that matters; a weight of 1 is not written there."""
    assert CLUSTERS[RISING] == 1, "what is 1 has no line of its own"
    change = f"/name: {RISING}$/{{n;/weight/d}}" if back else f"/name: {RISING}$/a\\    weight: {RISEN}"
    return f"poise get {FLEET} -o yaml | sed '{change}' | poise apply -y -f -"
