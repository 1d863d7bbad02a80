"""TLS from files, reloaded when they change; and the end of a server."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import httpx2
import pytest
import trustme
from tests.serve.live_server import ORDERS, AwayStore, LiveServer, token_line, tokens_file

from poise.serve.settings import ServeSettings


def certify(folder: Path, authority: trustme.CA) -> ServeSettings:
    """Write a new certificate."""
    leaf = authority.issue_cert("127.0.0.1", "localhost")
    leaf.private_key_pem.write_to_path(folder / "key.pem")
    leaf.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return ServeSettings(tls_cert=folder / "cert.pem", tls_key=folder / "key.pem")


def serial(port: int) -> bytes:
    """Look at the certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 10) as plain, context.wrap_socket(plain) as shown:
        return shown.getpeercert(binary_form=True) or b""


def trusting(server: LiveServer, authority: trustme.CA) -> httpx2.Client:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return httpx2.Client(base_url=server.url, verify=context, timeout=10)


def test_a_server_with_tls_answers_and_marks_its_cookie_secure(tmp_path: Path) -> None:
    authority = trustme.CA()
    made = certify(tmp_path, authority)
    tokens = tokens_file(tmp_path, token_line("olga", "operator"))
    settings = ServeSettings(tls_cert=made.tls_cert, tls_key=made.tls_key, tokens=tokens)
    with LiveServer(settings) as server, trusting(server, authority) as client:
        assert client.get("/livez").status_code == 200
        logged_in = client.post("/login", json={"token": "aglo"}, headers={"Origin": server.url})
        assert logged_in.headers["set-cookie"].endswith("; Secure")
        plain_origin = client.post(
            "/login", json={"token": "aglo"}, headers={"Origin": server.url.replace("https", "http")}
        )
        assert plain_origin.status_code == 403


@pytest.mark.slow
def test_a_changed_certificate_is_taken_and_a_broken_one_is_not(tmp_path: Path) -> None:
    authority = trustme.CA()
    with LiveServer(certify(tmp_path, authority)) as server, trusting(server, authority) as client:
        assert client.get("/livez").status_code == 200
        before = serial(server.port)
        (tmp_path / "key.pem").write_text("half a key")
        time.sleep(1.5)
        assert serial(server.port) == before
        certify(tmp_path, authority)
        end_s = time.monotonic() + 8
        while serial(server.port) == before and time.monotonic() < end_s:
            time.sleep(0.2)
        assert serial(server.port) != before
        assert client.get("/livez").status_code == 200, "connections that are there go on"


def test_plain_http_on_a_tls_port_harms_nobody(tmp_path: Path) -> None:
    authority = trustme.CA()
    with LiveServer(certify(tmp_path, authority)) as server:
        with server.raw() as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            connection.settimeout(5)
            connection.recv(100)
        with trusting(server, authority) as client:
            assert client.get("/livez").status_code == 200


def test_what_is_under_way_is_finished_before_the_end() -> None:
    store = AwayStore()
    with LiveServer(store=store) as server:
        with server.client() as client:
            server.put(ORDERS, client)
        store.slow_s = 0.7
        statuses: list[int] = []

        def ask() -> None:
            with server.client() as own:
                statuses.append(own.get("/v1/jobs/PartitionSet/orders").status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.3)
        server.end()
        asking.join(10)
        assert statuses == [200]
        with pytest.raises(OSError, match=r"refused|reset"):
            server.raw()
