"""Synthstream: a synthetic copy of a private event stream, kept up to date under one privacy budget."""
