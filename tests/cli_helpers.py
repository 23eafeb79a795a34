"""The command line, called inside the test's process."""

from homing.cli.main import main


def command(capsys, *args):
    """Exit code, what was printed, what was complained about."""
    code = 0
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    return code, out, err
