"""Studies: grids of agents × environments × settings × seeds, planned, run locally or on a cluster, and reported."""
