"""`python -m bench`."""

from __future__ import annotations

import sys

USAGE_EXIT_CODE = 2

if __name__ == "__main__":
    try:
        from bench.cli import main
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "bench":
            raise
        print(f"error: the benchmarks need {error.name}: pip install '.[bench]'", file=sys.stderr)
        sys.exit(USAGE_EXIT_CODE)
    main()
