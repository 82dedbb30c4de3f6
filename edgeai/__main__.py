"""The `edgeai` command, also as `python -m edgeai`."""

from edgeai.extras import required


def main() -> None:
    with required("edgeai", "cli"):
        from edgeai.cli.main import main as command

        command()


if __name__ == "__main__":
    main()
