"""`python -m deltastore.cli` is `deltastore`."""

from deltastore.cli import main

main()
