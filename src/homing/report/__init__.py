"""What runs have come to: statistics, tables, figures and pages.

`stats` is arithmetic alone and imports nothing of the package, so that everything may use it.
"""
