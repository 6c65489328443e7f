"""Helpers of the tests: servers, databases, processes."""
