from __future__ import annotations

import pytest

from bench.measure import PeakMemory, deep_size_bytes, histogram, latency, median, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.95, 95), (0.99, 99), (1, 100)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: float):
    assert percentile([float(number) for number in range(1, 101)], share) == expected


def test_percentile_of_one_sample_is_that_sample():
    assert percentile([7.0], 0) == percentile([7.0], 0.5) == percentile([7.0], 1) == 7.0


@pytest.mark.parametrize(("samples", "share"), [([], 0.5), ([1.0], 1.1), ([1.0], -0.1)])
def test_percentile_refuses_what_has_none(samples: list[float], share: float):
    with pytest.raises(ValueError, match="no percentile"):
        percentile(samples, share)


def test_median_is_a_sample_whatever_the_order():
    assert median([3, 1, 2]) == 2
    assert median(iter([4, 1, 3, 2])) == 2


def test_latency_sums_samples_up():
    calls = latency([1.0] * 98 + [10.0, 100.0])
    assert calls is not None
    assert (calls.count, calls.p50_ms, calls.p95_ms, calls.p99_ms, calls.max_ms) == (100, 1.0, 1.0, 10.0, 100.0)
    assert calls.histogram == {0: 98, 10: 1, 20: 1}


def test_latency_of_nothing_is_nothing():
    assert latency([]) is None


def test_histogram_keeps_every_sample():
    assert sum(histogram([0.0, 0.0001, 0.02, 5, 1e6]).values()) == 5


def test_deep_size_counts_shared_values_once():
    text = "x" * 10_000
    assert 10_000 < deep_size_bytes([text, {"again": text}]) < 12_000


def test_deep_size_leaves_classes_out():
    class Thing:
        """A class with a large attribute."""

        large = "y" * 100_000

    assert deep_size_bytes(Thing()) < 10_000


def test_peak_memory_sees_what_has_gone():
    memory = PeakMemory()
    memory.reset()
    before = memory.now_bytes()
    block = bytearray(64_000_000)
    block[::4096] = b"z" * len(block[::4096])
    del block
    assert memory.peak_bytes() - before > 50_000_000
