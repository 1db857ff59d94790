"""What is measured and how rows are made of it: a mechanism of the kernel, or of the papers, with its fit.

The only room that knows one kind from another. It sees exact counts on their way to the kernel, and what passed the
gate. It imports ``kernel``, ``fit``, ``release`` and ``config``, and ``papers`` for streams that ask for it.
"""
