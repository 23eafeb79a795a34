"""`homing play`: a local page on which a person sets goals for a policy and watches it live."""
