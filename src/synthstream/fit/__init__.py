"""Free post-processing: rows and masses fitted to what passed the gate.

It sees ``measured`` alone. It imports the vocabulary.
"""
