"""Pages for people: the public report and the page of a plan. They work offline.

It sees what is published and public settings. It imports ``publish``, ``forecast`` and what these import.
"""
