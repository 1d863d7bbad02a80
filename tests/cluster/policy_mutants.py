"""Policies that are broken on purpose: each clause of each rule dropped once, and what is more subtle than that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from tests.cluster.policy_world import make_policy, make_ring

from poise.jobs.sharder.policy import Protection


class Broken(NamedTuple):
    """What a policy lacks: in which expression, what is written there (RING stands for its ring), and what instead.

    One that loosens is noticed by something that is allowed now, else by something that is not.
    """

    where: str
    text: str
    instead: str = ""
    webhook: bool = False
    loosens: bool = True
    name: str = ""

    def __str__(self) -> str:
        """Name what is broken."""
        return f"{self.where}: {self.name or f'{self.text} is {self.instead or None}'}"


class _Expression(msgspec.Struct, omit_defaults=True, rename="camel"):
    expression: str
    name: str = ""
    message: str = ""
    message_expression: str = ""
    reason: str = ""


class _Rule(msgspec.Struct, rename="camel"):
    api_groups: list[str]
    api_versions: list[str]
    operations: list[str]
    resources: list[str]
    scope: str


class _Constraints(msgspec.Struct, rename="camel"):
    match_policy: str
    namespace_selector: dict[str, object]
    object_selector: dict[str, object]
    resource_rules: list[_Rule]


class _Spec(msgspec.Struct, rename="camel"):
    failure_policy: str
    match_constraints: _Constraints
    variables: list[_Expression]
    validations: list[_Expression]
    match_conditions: list[_Expression] = []

    def expressions(self) -> Iterator[tuple[str, _Expression]]:
        """Give all expressions by their names."""
        yield from ((each.name, each) for each in self.variables)
        yield from ((f"validation {place}", each) for place, each in enumerate(self.validations))


# Each clause of these is dropped once.
_RULES = (
    "isFree",
    "holds",
    "isChild",
    "isNext",
    "isLarger",
    "letsGo",
    "handsOver",
    "movesChild",
    "raises",
    "drainGone",
)
# One only keeps an expression from failing, one chooses between two messages: no verdict depends on them.
_HARMLESS = {("isChild", "oldObject != null"), ("validation 1", "!variables.holds")}
_FIRST = ('"shard.poise.dev/RING", ', '"epoch.poise.dev/RING", ', '"drain.poise.dev/RING", ')
_LAST = ', "drain-until.poise.dev/RING"'
_GROUP = '(owner.apiVersion.contains("/") ? owner.apiVersion.split("/")[0] : "")'
_SUBTLE = [
    *(Broken("keys", each) for each in (*_FIRST, _LAST)),
    *(Broken("drainKept", each) for each in (_FIRST[2], _LAST)),
    Broken("instance", 'variables.pod == "" ? variables.user : ', loosens=False),
    Broken("instance", "variables.user.startsWith", '"".startsWith', loosens=False),
    Broken("instance", ' : ""', " : variables.pod"),
    Broken(
        "isExempt", "variables.user in ", 'variables.user.startsWith("system:serviceaccount:kube-system:") || "" in '
    ),
    Broken("isChild", "owner.?controller.orValue(false) && "),
    Broken("isChild", ' + "/" + owner.kind in [', '.size() >= 0 || "" in ['),
    Broken("isChild", _GROUP, '""'),
    Broken("isNext", "== variables.epoch + 1", "> variables.epoch"),
    Broken("isNext", "== variables.epoch + 1", "== variables.epoch"),
    Broken("isLarger", "> variables.epoch", "!= variables.epoch"),
    Broken("nextEpoch", "^[1-9]", "^[0-9]"),
    Broken("nextEpoch", "{0,17}$", "{0,17}"),
    Broken("movesChild", "variables.drainGone || ", loosens=False),
    Broken("movesChild", " || variables.drainKept", loosens=False),
    Broken("operations", "CREATE", "DELETE"),
    Broken("operations", "UPDATE", "DELETE"),
    Broken("resources", "pods/*", "services"),
    Broken("isFree", 'request.operation == "CREATE" && ', webhook=True),
    Broken("isFree", ' && request.?subResource.orValue("") == ""', webhook=True),
]


def clauses(expression: str) -> tuple[list[str], str]:
    """Part an expression at its outermost `&&`, or else `||`; gives what stood between the parts, too."""
    for joint in (" && ", " || "):
        parts: list[str] = []
        for part in expression.split(joint):
            if parts and parts[-1].count("(") != parts[-1].count(")"):
                parts[-1] += joint + part
            else:
                parts.append(part)
        if len(parts) > 1:
            return parts, joint
    return [expression], ""


def _dropped() -> Iterator[Broken]:
    """Drop each clause of each rule; all that is allowed by an expression of one clause is a row anyhow."""
    spec = _read(make_policy(make_ring("RING", "ns")))
    for where, each in spec.expressions():
        parts, joint = clauses(each.expression)
        for place, part in enumerate(parts):
            rest = parts[:place] + parts[place + 1 :]
            if rest and (where in _RULES or "validation" in where) and (where, part) not in _HARMLESS:
                loosens, name = joint == " && ", f"without {part}"
                yield Broken(where, each.expression, joint.join(rest), loosens=loosens, name=name)


def _read(made: Protection) -> _Spec:
    return msgspec.convert(made.policy["spec"], _Spec)


BROKEN = [*_dropped(), *_SUBTLE]


def break_policy(broken: Broken, ring: str, namespace: str) -> Protection:
    """Make the policy of a ring, and break it. It sees objects of this name alone: it may refuse everything."""
    made = make_policy(make_ring(ring, namespace), webhook=broken.webhook)
    spec = _read(made)
    spec.match_conditions = [_Expression(f'request.name.startsWith("{ring}-")', "own")]
    text, instead = (each.replace("RING", ring) for each in (broken.text, broken.instead))
    hits = 0
    for where, each in spec.expressions():
        if where == broken.where:
            hits += text in each.expression
            each.expression = each.expression.replace(text, instead)
    for rule in spec.match_constraints.resource_rules:
        named = {"operations": rule.operations, "resources": rule.resources}.get(broken.where, [])
        if text in named:
            hits += 1
            named[named.index(text)] = instead
    assert hits, f"nothing is broken by {broken}"
    return msgspec.structs.replace(made, policy={**made.policy, "spec": msgspec.to_builtins(spec)})
