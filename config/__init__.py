"""The application's values, no logic."""
