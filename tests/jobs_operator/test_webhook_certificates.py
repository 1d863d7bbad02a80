"""The certificates of the webhook: as others read them, replaced in the right order, and never for something worse."""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from poise.errors import InvalidSpec
from poise.jobs.sharder.webhook import authority
from poise.jobs.sharder.webhook.authority import LASTS, RENEWED, Kept, Served, next_kept, read_kept, write_kept
from poise.jobs.sharder.webhook.certificates import Certificates, FileCertificates, Proof
from poise.jobs.sharder.webhook.showing import Shown, doubts, load
from poise.jobs.sharder.webhook.x509 import certificates, read_span

NAME = "hook.poise.svc"
NAMES = (NAME, "127.0.0.1")
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


def step(kept: Kept | None, now: datetime, *, trusted: bool = False, names: tuple[str, ...] = NAMES) -> Kept | None:
    return next_kept(kept, names, now, trusted=trusted)


def made(now: datetime = NOW, names: tuple[str, ...] = NAMES) -> Kept:
    kept = step(None, now, names=names)
    assert kept is not None
    return kept


def proof(kept: Kept) -> Proof:
    return Proof(kept.current.certificate, kept.current.key, kept.trusted)


def test_others_read_the_certificates_as_they_are_meant() -> None:
    kept = made()
    root, leaf = (x509.load_pem_x509_certificate(text.encode()) for text in (*kept.bundle, kept.current.certificate))
    leaf.verify_directly_issued_by(root)
    root.verify_directly_issued_by(root)
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hook.poise.svc"]
    assert names.get_values_for_type(x509.IPAddress) == [ip_address("127.0.0.1")]
    assert (leaf.not_valid_before_utc, leaf.not_valid_after_utc) == (NOW - timedelta(hours=1), NOW + LASTS)
    key = load_pem_private_key(kept.current.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == leaf.public_key()


@pytest.mark.parametrize("years", [0, 10, 23, 24, 60])
def test_a_span_is_read_as_it_was_written(years: int) -> None:
    now = NOW.replace(month=3, day=1, year=2026 + years)
    kept = made(now)
    span = read_span(kept.current.certificate)
    assert span.ends == now + LASTS
    assert x509.load_pem_x509_certificate(kept.bundle[0].encode()).not_valid_after_utc == span.ends


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "rubbish"])
def test_what_is_no_certificate_is_told(text: str) -> None:
    with pytest.raises(InvalidSpec):
        read_span(text)


def test_a_server_is_believed_only_by_its_own_authority_and_in_time() -> None:
    kept = made()
    context = load(kept.current.certificate, kept.current.key)
    for name in NAMES:
        assert doubts(context, kept.trusted, name) == ""
    assert "issuer" in doubts(context, made(NOW + DAY).trusted, NAME)
    for other in ("other.poise.svc", "poise webhook", "127.0.0.2", ""):
        assert doubts(context, kept.trusted, other)
    old = made(NOW - LASTS - DAY)
    assert "expired" in doubts(load(old.current.certificate, old.current.key), old.trusted, NAME)
    assert doubts(context, "rubbish", NAME)
    with pytest.raises(InvalidSpec, match="no certificate with its key"):
        load(kept.current.certificate, old.current.key)


def believed(kept: Kept, by: Kept) -> bool:
    """Say whether what is served in one state is believed by those who know another one."""
    return doubts(load(kept.current.certificate, kept.current.key), by.trusted, kept.current.names[0]) == ""


def check_replacement() -> None:
    """Follow a certificate through its life: in every state, and across every step, the server is believed."""
    first = made(NOW - (LASTS - RENEWED) - DAY)
    assert step(first, NOW - 2 * DAY) is None
    announced = step(first, NOW)
    assert announced is not None
    assert announced.current == first.current
    assert announced.next is not None
    assert len(announced.bundle) == 2
    assert step(announced, NOW) is None, "not before the API server knows the new authority"
    served = step(announced, NOW, trusted=True)
    assert served is not None
    assert served.current == announced.next
    assert served.next is None
    assert step(served, NOW) is None
    for one, other in ((first, announced), (announced, served)):
        # One process, or the API server, may know the state before already, or the one after.
        assert believed(one, one)
        assert believed(one, other)
        assert believed(other, one)
    pruned = step(served, NOW + RENEWED)
    assert pruned is not None
    assert pruned.bundle == served.bundle[1:]


def test_a_new_authority_is_trusted_before_its_certificate_is_served() -> None:
    check_replacement()


def _hasty(kept: Kept | None, names: tuple[str, ...], now: datetime, *, trusted: bool) -> Kept | None:
    found = authority.next_kept(kept, names, now, trusted=True)
    return found if trusted or found is None or found.next is None else Kept(found.next, found.bundle)


def test_a_replacement_without_overlap_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "next_kept", _hasty)
    with pytest.raises(AssertionError):
        check_replacement()


@pytest.mark.parametrize(
    ("kept", "now", "names"),
    [
        (made(NOW - LASTS - DAY), NOW, NAMES),
        (made(), NOW, ("other.poise.svc",)),
        (Kept(made(NOW - LASTS - DAY).current, made().bundle, made().current), NOW, NAMES),
    ],
    ids=["run out", "other names", "run out with a next one"],
)
def test_what_is_of_no_use_is_replaced_at_once(kept: Kept, now: datetime, names: tuple[str, ...]) -> None:
    found = step(kept, now, names=names)
    assert found is not None
    assert found.current.names == names
    assert found.next is None
    assert step(found, now, names=names) is None
    assert believed(found, found)


def test_a_next_one_of_other_names_is_dropped() -> None:
    kept = Kept(made().current, made().bundle, Served("", "", ("gone",)))
    assert step(kept, NOW) == Kept(kept.current, kept.bundle)


def test_a_secret_keeps_everything_and_rubbish_is_nothing() -> None:
    announced = step(made(NOW - LASTS + DAY), NOW)
    assert announced is not None
    assert read_kept(write_kept(announced)) == announced
    data = write_kept(made())
    assert read_kept({}) is None
    for name in ("tls.crt", "tls.key", "ca.crt"):
        assert read_kept({**data, name: ""}) is None
        assert read_kept({**data, name: "%%%"}) is None
    assert read_kept({**data, "tls.crt": data["tls.key"]}) is None


def write(folder: Path, given: Proof) -> FileCertificates:
    paths = [folder / name for name in ("tls.crt", "tls.key", "ca.crt")]
    for path, text in zip(paths, (given.certificate, given.key, given.trusted), strict=True):
        path.write_text(text)
    return FileCertificates(paths[0], paths[1], paths[2], NAME)


def test_files_are_read_again_and_a_worse_one_keeps_the_old(tmp_path: Path) -> None:
    first, second, old = made(), made(NOW - DAY / 2), made(NOW - LASTS - DAY)
    found = write(tmp_path, proof(first))
    found.look()
    assert found.trouble == ""
    assert found.bundle == first.trusted
    shown_first = found.shown._newest
    for worse, told in (
        (proof(old), "it has expired"),
        (Proof(second.current.certificate, first.current.key, second.trusted), "no certificate with its key"),
        (Proof(second.current.certificate, second.current.key, first.trusted), "would believe it"),
        (proof(made(NOW - DAY, ("other.poise.svc", "::1"))), "it is for other.poise.svc, ::1, and the API server"),
        (proof(made(NOW - DAY, ("other.poise.svc",))), f"calls {NAME}"),
        (Proof("", "", ""), "no certificate with its key"),
    ):
        write(tmp_path, worse)
        found.look()
        assert told in found.trouble
        assert found.trouble.startswith("the certificate cannot be replaced")
        assert "\n" not in found.trouble
        assert (found.bundle, found.shown._newest) == (first.trusted, shown_first)
    (tmp_path / "tls.key").unlink()
    found.look()
    assert "tls.key cannot be read: No such file" in found.trouble
    write(tmp_path, proof(second))
    found.look()
    assert found.trouble == ""
    assert found.bundle == second.trusted
    assert found.shown._newest is not shown_first


def test_an_expired_certificate_is_told_and_still_shown(tmp_path: Path) -> None:
    old = made(NOW - LASTS - DAY)
    found = write(tmp_path, proof(old))
    assert found.trouble == "there is no certificate yet"
    found.look()
    assert "the certificate has expired on " in found.trouble
    assert found.left_s < 0
    assert found.bundle == old.trusted
    moment = [NOW]
    ageing = Certificates(NAME, lambda: moment[0])
    ageing.offer(proof(made()))
    assert ageing.trouble == ""
    moment[0] = NOW + LASTS
    assert "expired" in ageing.trouble


def test_the_next_handshake_shows_the_new_certificate() -> None:
    """The name that a client asks for plays no part; one who names an address sends none at all."""

    async def seen(shown: Shown, trusted: str, name: str) -> str:
        server = await asyncio.start_server(lambda _read, write: write.close(), "127.0.0.1", 0, ssl=shown.context)
        client = ssl.create_default_context(cadata=trusted) if trusted else ssl.create_default_context()
        port = server.sockets[0].getsockname()[1]
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
            shown_certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return ssl.DER_cert_to_PEM_cert(shown_certificate)
        except (ssl.SSLError, ConnectionError):
            return ""
        finally:
            server.close()
            await server.wait_closed()

    async def scenario() -> None:
        shown = Shown()
        assert await seen(shown, "", "127.0.0.1") == ""
        for kept in (made(), made(NOW - DAY / 2)):
            shown.use(load(kept.current.certificate, kept.current.key))
            for name in NAMES:
                found = await seen(shown, kept.trusted, name)
                assert certificates(found) == certificates(kept.current.certificate)

    asyncio.run(scenario())


def test_where_there_are_no_files_in_memory_a_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    kept = made()
    assert doubts(load(kept.current.certificate, kept.current.key), kept.trusted, NAME) == ""


def test_the_key_of_an_authority_is_kept_nowhere() -> None:
    data = write_kept(made())
    assert sorted(data) == ["ca.crt", "tls.crt", "tls.key", "tls.names"]
    assert authority.LASTS > 2 * authority.RENEWED
