"""A page on which a person moves the goal and an agent goes there, live."""
