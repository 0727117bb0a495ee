"""The bookkeeping: records, bank and model clients, documents, and the compressed night.

Knows the engine (`fleet`) and the settings (`config`); nothing below knows it.
"""
