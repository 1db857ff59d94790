"""Columns, coordinates, bins and the clock: a row becomes codes, and codes become rows. Total: no row can raise.

It sees rows cell by cell and keeps none. It imports the vocabulary alone.
"""
