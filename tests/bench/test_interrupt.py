from __future__ import annotations

import signal

import pytest

from bench import interrupt


def test_the_first_ctrl_c_is_acknowledged_at_once_and_its_echo_is_not():
    said: list[str] = []
    watched = interrupt.Interrupt(said.append)
    with watched.handled():
        signal.raise_signal(signal.SIGINT)
        assert said == ["Stopping; Ctrl-C again to drop what is running."]
        signal.raise_signal(signal.SIGINT)
    assert watched.requested
    assert len(said) == 1


def test_the_second_ctrl_c_drops_what_is_running(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interrupt, "SAME_INTERRUPT_SECONDS", -1.0)
    said: list[str] = []
    with interrupt.Interrupt(said.append).handled():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert said[-1] == "Dropping what is running."
