"""What is measured of systems: error rates of test sets, emission times, coverage of Z."""
