"""From the size of noise to (epsilon, delta): conversions, numbers in and numbers out.

It sees no data. It imports nothing, and all rooms may use it.
"""
