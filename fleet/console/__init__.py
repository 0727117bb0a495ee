"""The on-call page: what a fleet is doing now, and a person's hand on it, in a browser.

Server-rendered (Starlette, Jinja2), read without script; a small script of its own brings pages up to date. Installed
by the extra `console`; `fleet console` runs it, in a process of its own that no lane needs.

Not guaranteed: that a page is one instant, each is read while it is made; nor that two people see the same. What it
cannot read it says, in the place where that would stand.
"""
