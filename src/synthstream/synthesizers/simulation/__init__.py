"""Errors of published rows and points, by running the mechanisms on simulated events.

It sees no data. Synthesizers import it to answer for their own accuracy.
"""
