"""The endpoints: what they answer, to whom, and how the process starts and ends."""

from __future__ import annotations

import concurrent.futures
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from draftgate.errors import AddressUnusable, EngineUnreachable
from draftgate.profile.model import Profile
from draftgate.sidecar.config import Expectation, SidecarConfig, configure
from draftgate.sidecar.server import SidecarServer, scrape_limit
from tests.conftest import REPOSITORY, Golden
from tests.standin.endpoint import Failure, StandinEngine
from tests.standin.expositions import VLLM, edited, exposition, without
from tests.unit.sidecar.conftest import CONFIG, Sidecar, StartSidecar, state, value

KEY = "sk-canary-41d8"
BUSY = edited(exposition(VLLM), {"vllm:num_requests_running": 2})


def generations(engine: StandinEngine) -> int:
    return sum(request.path == "/v1/completions" for request in engine.received)


@pytest.mark.parametrize(
    ("header", "limit"),
    [
        (None, 10.0),
        ("15", 10.0),
        ("10", 9.0),
        ("1", 0.5),
        ("0.2", 0.1),
        ("0", 10.0),
        ("-3", 10.0),
        ("nan", 10.0),
        ("inf", 10.0),
        ("soon", 10.0),
    ],
)
def test_scrape_limit(header: str | None, limit: float) -> None:
    assert scrape_limit(header, 10.0) == pytest.approx(limit)


def test_metrics_are_text_for_prometheus(sidecar: Sidecar) -> None:
    answer = sidecar.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")


def test_pages(sidecar: Sidecar, golden: Golden) -> None:
    assert (sidecar.get("/livez").status_code, sidecar.get("/livez").text) == (200, "alive\n")
    golden("sidecar/landing.html", sidecar.get("/").text)
    assert sidecar.get("/metricsx").status_code == 404
    head = requests.head(sidecar.url + "/livez", timeout=60)
    assert (head.status_code, head.headers["Content-Length"], head.content) == (200, "6", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
def test_other_methods_are_refused(sidecar: Sidecar, method: str) -> None:
    answer = requests.request(method, sidecar.url + "/metrics", timeout=60)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_it_lives_whatever_the_engine_does(engine: StandinEngine, sidecar: Sidecar) -> None:
    engine.stop()
    assert sidecar.get("/livez").status_code == 200


def test_an_idle_engine_is_asked_for_one_token_and_not_again_soon(
    engine: StandinEngine, sidecar: Sidecar
) -> None:
    first, second = sidecar.get("/readyz"), sidecar.get("/readyz")
    assert (first.status_code, second.status_code) == (200, 200)
    assert re.fullmatch(r"a token was generated in \d+\.\d{3} s\n", first.text)
    assert re.fullmatch(r"a token was generated \d+ s ago\n", second.text)
    assert generations(engine) == 1


def test_it_is_asked_again_when_the_last_token_is_old(
    engine: StandinEngine, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar(engine_url=engine.url, ready_seconds=0.0)
    assert [sidecar.get("/readyz").status_code for _ in range(2)] == [200, 200]
    assert generations(engine) == 2


def test_many_checks_share_one_generation(engine: StandinEngine, sidecar: Sidecar) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda _: sidecar.get("/readyz").status_code, range(32)))
    assert set(codes) == {200}
    assert generations(engine) == 1


def test_a_busy_engine_that_gets_on_is_ready_unasked(engine: StandinEngine, sidecar: Sidecar) -> None:
    engine.generation_failure = Failure.SERVER_ERROR
    engine.metrics = BUSY
    sidecar.metrics()
    engine.metrics = edited(BUSY, {"vllm:kv_cache_usage_perc": 0.5})
    answer = sidecar.get("/readyz")
    assert (answer.status_code, answer.text) == (200, "the engine holds requests and gets on with them\n")
    assert generations(engine) == 0


def test_a_busy_engine_whose_queue_is_longer_than_the_probe_is_ready_if_it_gets_on(
    engine: StandinEngine, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar(engine_url=engine.url, probe_timeout=1.0)
    engine.generation_failure = Failure.SILENT
    engine.metrics = BUSY
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(sidecar.get, "/readyz")
        while not generations(engine):
            engine.stopped.wait(0.01)
        engine.metrics = edited(BUSY, {"vllm:generation_tokens_total": 301})
        assert answer.result().status_code == 200


def test_a_stalled_engine_is_not_ready_even_after_a_token(
    engine: StandinEngine, start_sidecar: StartSidecar
) -> None:
    sidecar = start_sidecar(engine_url=engine.url, stall_seconds=0.0)
    assert sidecar.get("/readyz").status_code == 200
    engine.metrics = BUSY
    assert state(sidecar.metrics()) == "stalled"
    answer = sidecar.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == "the engine holds requests, and for the stall limit nothing has moved\n"


def test_an_engine_that_died_is_not_ready_even_after_a_token(engine: StandinEngine, sidecar: Sidecar) -> None:
    assert sidecar.get("/readyz").status_code == 200
    engine.stop()
    answer = sidecar.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "the engine does not answer\n")


def test_an_engine_without_statistics_can_be_ready(engine: StandinEngine, sidecar: Sidecar) -> None:
    engine.metrics = without(exposition(VLLM), "vllm:")
    assert state(sidecar.metrics()) == "blind"
    assert sidecar.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (
            Failure.SERVER_ERROR,
            "the engine answered with another status than 200; redirects are not followed (status 500)",
        ),
        (Failure.RESET, "the connection to the engine failed or broke"),
        (Failure.HUGE, "the answer is larger than it can rightly be"),
    ],
)
def test_why_it_is_not_ready(engine: StandinEngine, sidecar: Sidecar, failure: Failure, why: str) -> None:
    engine.generation_failure = failure
    answer = sidecar.get("/readyz")
    assert answer.status_code == 503
    assert answer.text == f"no token was generated: no usable answer from the engine: {why}\n"


def test_the_key_goes_to_the_engine_and_nowhere_else(
    engine: StandinEngine, start_sidecar: StartSidecar, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    engine.key = KEY
    sidecar = start_sidecar(engine_url=engine.url, api_key_file=file)
    answers = [sidecar.get(path) for path in ("/", "/metrics", "/readyz", "/probe", "/probe?debug=true")]
    engine.key = "another"
    answers += [sidecar.get(path) for path in ("/probe", "/probe?debug=true")]
    file.unlink()
    answers += [sidecar.get(path) for path in ("/probe", "/probe?debug=true")]
    file.write_bytes(b"sk-\xff" + KEY.encode())
    answers += [sidecar.get("/probe")]
    file.write_text(f"{KEY}\r\nX-Also: {KEY}")
    answers += [sidecar.get("/probe")]
    assert [answer.status_code for answer in answers] == [200] * 5 + [503] * 6
    told = "".join(answer.text + str(answer.headers) for answer in answers) + "".join(capfd.readouterr())
    assert KEY not in told
    assert str(tmp_path) not in told
    assert all(r.authorization is None for r in engine.received if r.path == "/metrics")
    assert any(r.authorization == f"Bearer {KEY}" for r in engine.received)


def test_whole_probe(engine: StandinEngine, start_sidecar: StartSidecar, golden: Golden) -> None:
    engine.metrics = without(exposition(VLLM), "vllm:")
    text = start_sidecar(engine_url=engine.url).get("/probe?debug=true").text
    text = re.sub(r"\d+\.\d{3} s", "0.000 s", text).replace(engine.url, "http://ENGINE")
    text = re.sub(r"(draftgate_scrape_duration_seconds) \d\S+\n", r"\1 0.0\n", text)
    golden("sidecar/probe.txt", text)


def test_a_client_that_hangs_up_leaves_no_trace(
    engine: StandinEngine, sidecar: Sidecar, capfd: pytest.CaptureFixture[str]
) -> None:
    address = ("127.0.0.1", int(sidecar.url.rpartition(":")[2]))
    for _ in range(8):
        with socket.create_connection(address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    with socket.create_connection(address) as client:
        client.sendall(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
        assert b"400" in client.recv(1000)
    assert sidecar.get("/livez").status_code == 200
    assert capfd.readouterr() == ("", "")


def test_a_taken_port_is_named(sidecar: Sidecar) -> None:
    port = int(sidecar.url.rpartition(":")[2])
    with pytest.raises(AddressUnusable) as caught:
        SidecarServer("127.0.0.1", port, lambda: CONFIG)
    assert caught.value.lines() == [
        "the sidecar cannot listen",
        f"  where: 127.0.0.1:{port}",
        "  why:   Address already in use",
        "  next:  choose another with --host and --port, or sidecar.host and sidecar.port",
    ]


def test_it_follows_from_one_engine_to_the_next_and_forgets_the_first(engine: StandinEngine) -> None:
    watched: list[SidecarConfig | None] = [None]
    with SidecarServer("127.0.0.1", 0, lambda: watched[0]) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        sidecar = Sidecar(server)
        try:
            idle = sidecar.metrics()
            assert (value(idle, "draftgate_up"), state(idle)) == (0.0, "unreachable")
            assert "draftgate_profile_info" not in idle
            assert (sidecar.get("/readyz").status_code, sidecar.get("/readyz").text) == (
                503,
                "no engine runs\n",
            )
            assert "no engine runs" in sidecar.get("/").text
            watched[0] = replace(CONFIG, engine_url=engine.url)
            assert 'profile="vllm-cpu-eagle"' in sidecar.metrics()
            first = server.subject()
            assert server.subject() is first
            watched[0] = replace(CONFIG, profile="another", engine_url=engine.url)
            assert 'profile="another"' in sidecar.metrics()
            assert server.subject() is not first
        finally:
            server.shutdown()


def test_configuration_from_a_profile() -> None:
    from draftgate.cli.load import load

    loaded = load("vllm-cpu-eagle", ["server.api_key_file=/keys/engine"])
    config = configure(loaded.profile, loaded.pin, "http://127.0.0.1:8000/")
    assert config == replace(
        CONFIG,
        model=loaded.profile.target.served_name,
        api_key_file=Path("/keys/engine"),
        expected=Expectation(2.9, "the bundled evaluation prompts: models/training-report.json"),
        scrape_timeout=10.0,
        probe_timeout=5.0,
    )
    plain: Profile = load("vllm-cpu").profile
    assert configure(plain, loaded.pin, "http://h").num_speculative_tokens is None


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://h", "http://", "http://h:port", f"http://u:{KEY}@h", "http://h?x"]
)
def test_an_engine_url_that_is_none(url: str) -> None:
    from draftgate.cli.load import load

    loaded = load("vllm-cpu")
    with pytest.raises(EngineUnreachable) as caught:
        configure(loaded.profile, loaded.pin, url)
    assert KEY not in "".join(caught.value.lines())


SERVE = """
import sys
import threading
from dataclasses import replace
from draftgate.sidecar.server import serve
from tests.unit.sidecar.conftest import CONFIG
config = replace(CONFIG, engine_url=sys.argv[1])
serve("127.0.0.1", 0, lambda: config, lambda url: print(url, flush=True))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_even_within_a_scrape(engine: StandinEngine, number: signal.Signals) -> None:
    """The scrape in flight would last half a minute; the process does not wait for it."""
    engine.failure = Failure.DRIP_BODY
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, engine.url], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                while not engine.received:
                    engine.stopped.wait(0.01)
                process.send_signal(number)
                assert process.wait(20) == 0
        finally:
            process.kill()
