"""What makes a stream accurate, and cannot make it less private: matrices, times, and parts of a budget.

Public arithmetic on public facts, for the kernel to take or to refuse: it computes sensitivities of the matrices that
it is given, adds every part up, and draws nothing by a plan that costs more than the claim. It sees no row and nothing
that passed the gate but what planners are handed. It imports the vocabulary.
"""
