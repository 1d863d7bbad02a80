"""What `poise conformance shard` refuses before it makes anything, and how it words what it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from poise.cli.conformance import text_of
from poise.cli.main import UNAVAILABLE, USAGE, run
from poise.conformance.processes import fill_in
from poise.conformance.rules import Report, failed, gather, passed, unseen

TRUE = ("--", "true")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--ring", "r"), "Missing argument '-- COMMAND...'"),
        (TRUE, "Missing option '--ring'"),
        (("--ring", "Not_A_Name", *TRUE), "--ring: expected at most 63 of a-z, 0-9, - and ., got 'Not_A_Name'"),
        (("--ring", "r" * 64, *TRUE), "--ring: expected at most 63"),
        (("--ring", "r", "--namespace", "a.b", *TRUE), "--namespace: expected the name of a namespace, got 'a.b'"),
        (("--ring", "r", "--rule", "be-nice", *TRUE), "--rule: there is no rule 'be-nice'; there are unique-holder, "),
        (("--ring", "r", "--lease-seconds", "1", *TRUE), "Invalid value for '--lease-seconds'"),
        (("--ring", "r", "--", "no-such-command"), "no-such-command: no such command"),
    ],
)
def test_bad_words_are_refused_in_one_line(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["conformance", "shard", *arguments]) == USAGE
    data, talk = capsys.readouterr()
    assert data == ""
    assert told in talk
    assert talk.startswith("poise: ")
    assert talk.count("\n") == 1


def test_a_cluster_that_does_not_answer_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}"
    )
    assert run(["conformance", "shard", "--ring", "r", "--kubeconfig", str(config), *TRUE]) == UNAVAILABLE
    data, talk = capsys.readouterr()
    assert data == ""
    assert talk.count("\n") == 1


def test_a_report_has_a_line_a_rule_and_says_what_was_seen_of_those_that_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    said = [
        passed("empty-drain", "not shown"),
        failed("take-up-gains", "none of it"),
        unseen("wait-for-holder", "too early"),
    ]
    rules = gather(said, ["empty-drain", "take-up-gains", "wait-for-holder"])
    assert text_of(Report("r", ("./op", "--x"), 61.26, False, rules)) == (
        "Ring r: ./op --x (61 s)\n"
        "  not observed  wait-for-holder  a Lease that somebody else holds is taken only when that hold has run out\n"
        "                too early\n"
        "  failed        take-up-gains    what it is given is reconciled\n"
        "                none of it\n"
        "  passed        empty-drain      an empty drain value is answered by removing shard and drain together\n"
        "Rules: 1 kept, 1 broken, 1 not observed."
    )


def test_names_are_filled_in_and_other_braces_stay() -> None:
    command = ("op", "--ring={ring}", "{instance}", "{ring}/{namespace}", "{}", "{other}", "${ring}")
    words = {"ring": "r", "instance": "i", "namespace": "n"}
    assert fill_in(command, words) == ["op", "--ring=r", "i", "r/n", "{}", "{other}", "$r"]
