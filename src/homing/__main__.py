from homing.cli import command

command()
