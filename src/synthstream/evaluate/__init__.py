"""NOT PRIVATE. Comparisons with the true data, for the custodian alone; what it writes is stamped.

It sees the true data. Only the command line imports it.
"""
