"""`python -m sgld.cli`."""

from .app import main

main()
