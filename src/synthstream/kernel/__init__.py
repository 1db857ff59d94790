"""The trusted core: the only code that turns exact counts into released numbers.

It sees exact counts and hands out what passed the gate. It imports the vocabulary, ``accounting``, ``strategies``,
numpy, scipy and numba, and nothing else. README.md beside this file has the threat model.
"""
