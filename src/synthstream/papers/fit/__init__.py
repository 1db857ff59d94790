"""Models of paper 2: graphical models over junction trees, and multiplicative weights."""
