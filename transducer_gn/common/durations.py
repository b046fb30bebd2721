"""Lengths of time as people read them."""


def duration(seconds: float) -> str:
    """Seconds as 1:02:03 or 02:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def rough_duration(seconds: float) -> str:
    """Seconds to the precision that matters: 5.0 s, 12 min, 20 h 30 min."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
