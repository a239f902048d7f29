"""`python -m sgld`."""

from .cli.app import main

main()
