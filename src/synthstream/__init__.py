"""Synthstream: a synthetic copy of a private event stream, under one privacy budget."""
