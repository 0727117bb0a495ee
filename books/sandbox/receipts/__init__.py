"""Draws the receipts of a night, the truth beside each: seeded, German and English, crisp or skewed and noisy."""

from books.sandbox.receipts.drawing import Receipt, draw, draw_broken

__all__ = ["Receipt", "draw", "draw_broken"]
