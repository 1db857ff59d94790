"""What a stream will cost and how exact it will be, before it is opened.

It sees no data. It imports ``synthesizers``, ``publish`` and ``config``.
"""
