"""The sandbox's tax authority, which takes filings, and payment gateway, which takes charges: real HTTP, one process.

Both know Idempotency-Key and can be asked by key. Run `python -m books.sandbox.gateway`; its log is the judge of what
was done twice.
"""
