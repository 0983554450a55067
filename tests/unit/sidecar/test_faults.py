"""Whatever the engine does, /metrics answers, says why, and repeats nothing of what the engine wrote."""

from __future__ import annotations

import concurrent.futures

import pytest

from draftgate.metrics.faults import Fault
from tests.standin.endpoint import Failure, StandinEngine
from tests.standin.expositions import SGLANG_LLAMA, VLLM, edited, exposition, without
from tests.unit.sidecar.conftest import CONFIG, Sidecar, StartSidecar, reason, state, value

EVERY_FAILURE = {
    Failure.SHORT: Fault.TRUNCATED,
    Failure.SHORT_CHUNKS: Fault.TRUNCATED,
    Failure.BAD_CHUNKS: Fault.TRUNCATED,
    Failure.HUGE: Fault.TOO_LARGE,
    Failure.HUGE_DECLARED: Fault.TOO_LARGE,
    Failure.COMPRESSED: Fault.MALFORMED,
    Failure.REDIRECT: Fault.HTTP_STATUS,
    Failure.UNAUTHORIZED: Fault.HTTP_STATUS,
    Failure.SERVER_ERROR: Fault.HTTP_STATUS,
    Failure.RESET: Fault.CONNECTION,
    Failure.NOT_HTTP: Fault.CONNECTION,
}
WITHOUT_END = {Failure.SILENT, Failure.DRIP_HEADERS, Failure.DRIP_BODY}


@pytest.mark.parametrize("failure", EVERY_FAILURE)
def test_failed_answers(engine: StandinEngine, sidecar: Sidecar, failure: Failure) -> None:
    engine.failure = failure
    text = sidecar.metrics()
    assert reason(text) == EVERY_FAILURE[failure]
    assert "draftgate_profile_info{" in text
    assert "draftgate_spec" not in text
    engine.failure = Failure.NONE
    assert reason(sidecar.metrics()) is None


@pytest.mark.parametrize("failure", sorted(WITHOUT_END))
def test_answers_without_end_meet_the_deadline(
    engine: StandinEngine, start_sidecar: StartSidecar, failure: Failure
) -> None:
    """Without a deadline for the whole these never come back, so that there is an answer is the test."""
    engine.failure = failure
    text = start_sidecar(engine_url=engine.url, scrape_timeout=0.5).metrics()
    assert (reason(text), state(text)) == ("timeout", "unreachable")


def test_the_deadline_of_prometheus_comes_before_the_own(engine: StandinEngine, sidecar: Sidecar) -> None:
    engine.failure = Failure.DRIP_BODY
    text = sidecar.metrics(X_Prometheus_Scrape_Timeout_Seconds="0.6")
    assert reason(text) == "timeout"
    duration = value(text, "draftgate_scrape_duration_seconds")
    assert duration is not None
    assert duration < CONFIG.scrape_timeout


def test_every_failure_is_tried() -> None:
    assert {Failure.NONE, *EVERY_FAILURE, *WITHOUT_END} == set(Failure)


def test_nothing_listens(engine: StandinEngine, sidecar: Sidecar) -> None:
    engine.stop()
    text = sidecar.metrics()
    assert (reason(text), state(text)) == ("refused", "unreachable")


def test_a_redirect_is_not_followed(engine: StandinEngine, sidecar: Sidecar) -> None:
    with StandinEngine() as other:
        engine.failure = Failure.REDIRECT
        engine.redirect_to = f"{other.url}/metrics"
        assert reason(sidecar.metrics()) == "http_status"
        assert other.received == []


CANARY = "sk-canary-7f3a"
_CANARY_LABEL = f'vllm:num_requests_running{{engine="0",model_name="{CANARY}"}} 0.0\n'


@pytest.mark.parametrize(
    ("body", "expected", "expected_state"),
    [
        (b"", "empty", "unreadable"),
        (exposition(VLLM).encode()[:20_000], "truncated", "unreadable"),
        (b"\xff" + exposition(VLLM).encode(), "not_utf8", "unreadable"),
        (f"<html>{CANARY}</html>\n", "malformed", "unreadable"),
        (exposition(VLLM) + _CANARY_LABEL.replace('"0"', "0"), "malformed", "unreadable"),
        (exposition(VLLM) + _CANARY_LABEL.replace(CANARY, "x" * 7_000_000), "too_large", "unreadable"),
        (edited(exposition(VLLM), {"vllm:generation_tokens_total": "-1"}), "bad_value", "unreadable"),
        (exposition(SGLANG_LLAMA), "wrong_engine", "unreadable"),
        (f'# TYPE python_info gauge\npython_info{{version="{CANARY}"}} 1.0\n', None, "blind"),
        (exposition(VLLM).replace("\n", "\r\n"), None, "idle"),
        (exposition(VLLM) + f"{CANARY} 1\n" + "y" * 7_000_000 + " 1\n", None, "idle"),
        (exposition(VLLM).replace("tiny", CANARY), None, "idle"),
    ],
)
def test_odd_bodies(
    engine: StandinEngine, sidecar: Sidecar, body: str | bytes, expected: str | None, expected_state: str
) -> None:
    engine.metrics = body
    text = sidecar.metrics()
    assert (reason(text), state(text)) == (expected, expected_state)
    assert CANARY not in text


def test_truncated_at_every_family(engine: StandinEngine, sidecar: Sidecar) -> None:
    whole = exposition(VLLM)
    last = whole.index("vllm:request_time_per_output_token_seconds_created")
    for beginning in ("vllm:num_requests_running{", "vllm:generation_tokens_total{", "vllm:inter_token"):
        place = whole.index("\n" + beginning) + 1
        assert place < last
        for cut in (place, place + 15):
            engine.metrics = whole[:cut]
            assert reason(sidecar.metrics()) == "truncated"


def test_a_restarted_engine_starts_its_counters_anew(engine: StandinEngine, sidecar: Sidecar) -> None:
    engine.metrics = edited(exposition(VLLM), {"vllm:num_requests_running": 1})
    assert value(sidecar.metrics(), "draftgate_generated_tokens_total") == 300.0
    engine.metrics = edited(engine.metrics, {"vllm:generation_tokens_total": 4})
    text = sidecar.metrics()
    assert value(text, "draftgate_generated_tokens_total") == 4.0
    assert value(text, "draftgate_tokens_per_second") is None
    assert state(text) == "busy"


def test_an_engine_started_again_without_drafter_has_no_speculation(
    engine: StandinEngine, sidecar: Sidecar
) -> None:
    assert value(sidecar.metrics(), "draftgate_spec_drafts_total") == 297.0
    engine.metrics = without(exposition(VLLM), "vllm:spec_decode")
    assert "draftgate_spec" not in sidecar.metrics()


def test_scrapes_at_the_same_time_are_all_whole(engine: StandinEngine, sidecar: Sidecar) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(lambda _: sidecar.metrics(), range(64)))
    assert {value(text, "draftgate_spec_drafts_total") for text in texts} == {297.0}
    # The rate of tokens is absent from the one that came first, whichever that was.
    families = {text.count("# TYPE") for text in texts}
    assert max(families) - min(families) <= 1
