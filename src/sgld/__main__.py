"""The command line as `python -m sgld`."""

from .interfaces.cli.app import main

if __name__ == "__main__":
    main()
