"""The command line: one module for each group of commands, `main` to dispatch, and no logic of its own.

`arguments` finds flags and names wherever they stand, `guard` turns exceptions into one line and an exit code:
0 success, 1 a failure, 2 bad input, 128 + n after signal n.
"""
