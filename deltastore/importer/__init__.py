"""Threads of other savers, moved into deltastore with proof."""
