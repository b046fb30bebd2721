"""How good a system is: error rates, emission times, and the tables and figures that show them."""
