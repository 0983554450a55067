"""Whatever ends a demo, what it started is stopped; what it did not start is left alone."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from draftgate.bench import stage as module
from draftgate.bench.stage import Arm, Interrupts, Stage
from draftgate.cli.load import load
from draftgate.errors import AlreadyRunning, EngineFailed


class Native:
    """A double of `draftgate.runtime.native`; ``events`` is what was asked of it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.refuse = False
        self.signal_in: str | None = None

    def plan(self, *arguments: object, **options: object) -> str:
        return "plan"

    def up(self, planned: str) -> str:
        if self.refuse:
            raise AlreadyRunning("another runs")
        self._signal("up")
        self.events.append("up")
        return "run"

    def await_ready(self, show: object) -> None:
        self._signal("await")
        self.events.append("ready")

    def down(self, tell: object, *, now: bool = False) -> None:
        self._signal("down")
        self.events.append("down now" if now else "down")

    def _signal(self, where: str) -> None:
        if self.signal_in == where:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> Native:
    double = Native()
    monkeypatch.setattr(module, "native", double)
    return double


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    with Interrupts() as interrupts:
        yield interrupts


def arm() -> Arm:
    loaded = load("vllm-cpu")
    return Arm("vllm-cpu", (), loaded.profile, loaded.command)


def perform(
    interrupts: Interrupts,
    then: Callable[[Stage], None] = Stage.stop,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    with Stage(interrupts, tell) as stage:
        stage.start(arm(), sidecar=False)
        then(stage)


def test_a_good_end_drains(native: Native, interrupts: Interrupts) -> None:
    perform(interrupts)
    assert native.events == ["up", "ready", "down"]


@pytest.mark.parametrize(
    ("where", "events"),
    [
        ("up", ["up", "down now"]),  # held back until the start is whole, then raised
        ("await", ["up", "down now"]),
        ("down", ["up", "ready", "down"]),  # held back until it has stopped
    ],
)
def test_ctrl_c_anywhere_leaves_nothing(
    native: Native, interrupts: Interrupts, where: str, events: list[str]
) -> None:
    native.signal_in = where
    with pytest.raises(KeyboardInterrupt):
        perform(interrupts)
    assert native.events == events


def test_ctrl_c_while_cleaning_up_does_not_cut_it_short(native: Native, interrupts: Interrupts) -> None:
    native.signal_in = "down"

    def fail(stage: Stage) -> None:
        raise EngineFailed("it died")

    with pytest.raises(EngineFailed):
        perform(interrupts, fail)
    assert native.events == ["up", "ready", "down now"]


def test_sigterm_ends_with_its_exit_code(native: Native, interrupts: Interrupts) -> None:
    with pytest.raises(SystemExit) as caught:
        perform(interrupts, lambda stage: signal.raise_signal(signal.SIGTERM))
    assert caught.value.code == 143
    assert native.events == ["up", "ready", "down now"]


def test_what_another_started_is_left_alone(native: Native, interrupts: Interrupts) -> None:
    native.refuse = True
    with pytest.raises(AlreadyRunning):
        perform(interrupts)
    assert native.events == []


def test_what_is_kept_runs_on(native: Native, interrupts: Interrupts) -> None:
    perform(interrupts, Stage.keep)
    assert native.events == ["up", "ready"]


def test_a_closed_pipe_does_not_keep_it_from_stopping(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Telling(Native):
        def down(self, tell: object, *, now: bool = False) -> None:
            assert callable(tell)
            tell("stopping")
            super().down(tell, now=now)

    def closed(text: str) -> None:
        raise BrokenPipeError

    double = Telling()
    monkeypatch.setattr(module, "native", double)
    with pytest.raises(BrokenPipeError):
        perform(interrupts, lambda stage: closed("a line"), closed)
    assert double.events == ["up", "ready", "down now"]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
