"""`homing share`: one self-contained page in which a policy acts, computed by the browser itself."""
