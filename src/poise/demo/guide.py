"""The guide of the demo: the strip on top of the page, and the look at what a step has led to."""

from __future__ import annotations

import asyncio
import logging
import os

from markupsafe import Markup

from poise import clock
from poise.demo.commands import commands
from poise.demo.documents import CLUSTERS, RISING
from poise.demo.line import Line
from poise.demo.names import FLEET, ROUTERS
from poise.demo.sink import Sink
from poise.demo.steps import BY_NAME, STEPS, Step
from poise.demo.taking import DIVISION, POOL, take
from poise.demo.telling import Told, look, tell
from poise.demo.words import Settled, StepName, Taken
from poise.errors import Conflict, NotFound, PoiseError
from poise.serve.facade import JobsApi
from poise.serve.page.rendering import environment
from poise.serve.site import Lane

_LOOK_S, _REST_S = 0.4, 60.0
_REFUSED_S = 10.0  # How long the reason is shown why a step could not be taken.
_log = logging.getLogger("poise.demo")


class Guide:
    """Knows the steps that were taken, and says how far each has come."""

    def __init__(self, api: JobsApi, line: Line, sink: Sink, server: str = "") -> None:
        """Guide through the jobs of this facade; `server` is its address where that is not the usual one."""
        self._api, self._line, self._sink, self._server = api, line, sink, server
        self._refused: tuple[str, float] = ("", 0.0)

    async def take(self, lane: Lane, name: StepName, *, back: bool) -> str:
        """Take a step, and say what comes of it; one that cannot be taken now says why."""
        try:
            taken = await lane.run(lambda: take(name, self._api, self._line.state, back=back))
        except (Conflict, NotFound) as error:
            self._refused = (str(error), clock.boot_s() + _REFUSED_S)
            return str(error)
        self._refused = ("", 0.0)
        await self._line.order(taken)
        step = BY_NAME[name]
        return f"{step.back if taken.back else step.button}: {taken.subject}. {step.watch}"

    def tell(self, taken: Taken) -> Told:
        """Say how far a step has come."""
        part = next((each for each in self._line.state.parts if each.name == taken.subject), None)
        return tell(taken, look(self._api, taken), part, clock.now())

    async def watch(self) -> None:
        """Look at the steps that are under way, and tell the parent what was seen: it outlives this server."""
        while True:
            pending = [taken for taken in self._line.state.taken.values() if not taken.over]
            for taken in pending:
                try:
                    told = await asyncio.to_thread(self.tell, taken)
                except PoiseError as error:
                    _log.warning("demo.unseen step=%s reason=%s", taken.step, error)
                    continue
                if (told.settled_s, told.over) != (taken.settled_s, taken.over):
                    news = taken.settled_s is None
                    self._line.say(Settled(taken.step, told.settled_s, told.over, told.text, news))
            await self._line.change(_LOOK_S if pending else _REST_S)

    def strip(self) -> Markup:
        """Draw the strip: what has just happened, what to do next, and what of all this is real."""
        state = self._line.state
        last = list(state.taken.values())[-1] if state.taken else None
        nexts = [step for step in STEPS if step.name not in state.done]
        refusal, until_s = self._refused
        back = [step.name for step in STEPS if self._is_back(step)]
        typed = commands(self._api, state, back, os.getpid())
        text = (
            environment("poise.demo")
            .get_template("strip.html")
            .render(
                steps=[(step, step.name in state.done, step.name in back, typed.get(step.name, "")) for step in STEPS],
                next=nexts[0] if nexts else None,
                refusal=refusal if clock.boot_s() < until_s else "",
                told=self._last(last),
                begun=bool(state.done),
                step=BY_NAME[last.step] if last is not None else None,
                broken=[each for each in state.parts if each.state != "running"],
                work=self._work(),
                server=self._server,
            )
        )
        return Markup(text)

    def _last(self, taken: Taken | None) -> Told | None:
        """Say how far the newest step has come; a job that was deleted meanwhile cannot be looked at."""
        try:
            return self.tell(taken) if taken is not None else None
        except PoiseError as error:
            return Told(str(error))

    def _is_back(self, step: Step) -> bool:
        """Say whether a step has been taken and can be taken back."""
        try:
            match step.name:
                case "drain-collector":
                    return any(each.draining for each in self._api.members(POOL, ROUTERS))
                case "change-weight":
                    weights = {each.name: each.weight for each in self._api.members(DIVISION, FLEET)}
                    return weights.get(RISING, CLUSTERS[RISING]) != CLUSTERS[RISING]
        except PoiseError:
            return False
        return False

    def _work(self) -> tuple[int, int]:
        """Count what the workers have done, and what they were refused."""
        return self._sink.done(), self._sink.refused()
