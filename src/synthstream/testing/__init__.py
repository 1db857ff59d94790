"""Gates and environments for tests: they trace, replay, fail. None protects anyone, and all say so.

It sees what tests give it. It imports ``kernel`` and the vocabulary.
"""
