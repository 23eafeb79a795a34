"""The program `homing`: signal handlers first, then the imports, which take seconds."""

from homing.cli import interrupts


def command() -> None:
    interrupts.install()
    from homing.cli.main import command

    command()


if __name__ == "__main__":
    command()
