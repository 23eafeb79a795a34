"""Training: loops for one seed, many seeds in one program, evaluation, and the run around them."""
