"""The folder of releases, mirrors, descriptions for portals, and releases built again from what was measured.

It sees what is public and never opens the state. It imports ``release``, ``config`` and ``synthesizers``.
"""
