"""NOT PRIVATE. Looks at private rows, and comparisons with the true data, for the custodian alone; all is stamped.

It sees the true data. Only the command line imports it.
"""
