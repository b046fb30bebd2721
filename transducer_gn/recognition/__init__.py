"""A trained system in use: load it, transcribe with it, stream through it, count its errors."""
