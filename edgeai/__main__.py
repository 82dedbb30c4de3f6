"""`python -m edgeai`: the `edgeai` command."""

from edgeai.cli.main import main

if __name__ == "__main__":
    main()
