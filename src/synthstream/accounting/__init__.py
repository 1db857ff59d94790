"""From the size of noise to (epsilon, delta): conversions, numbers in and numbers out. All rooms may use it."""
