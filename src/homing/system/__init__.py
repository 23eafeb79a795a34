"""The machine: hardware and versions, and checks of the installation."""
