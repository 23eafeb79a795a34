"""Cost of compiled programs: FLOPs, memory traffic, kernel launches, and the machine's roofline."""
