"""Measuring recognisers: error rates, latency, tables and figures."""
