"""Studies: agents × environments × settings × seeds, and the figure that they make."""
