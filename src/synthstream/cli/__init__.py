"""The command line: it parses, calls and prints.

It sees what it is asked to show. It imports any room, and nothing imports it.
"""
