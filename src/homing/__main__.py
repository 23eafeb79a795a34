from homing.cli.main import command

command()
