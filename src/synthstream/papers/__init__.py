"""The two papers, literally: their mechanisms, counters and models. Nothing imports them but synthesizers, lazily."""
