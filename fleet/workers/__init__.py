"""Lanes as processes: a supervisor a lane, its children, and what each reports of itself."""
