"""Answers with the time of day."""

import time

from uncia_envelope import enveloped


def written(unix_s):
    """A time in UTC by the calendar's rules: eras of 400 years, which begin in March."""
    days, seconds = divmod(unix_s, 86_400)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * era + (month <= 2)
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{year:04}-{month:02}-{day:02} {clock}"


@enveloped()
def handler():
    unix_s = int(time.time())
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(unix_s))
    return {"text": text, "unix_s": unix_s}, text == written(unix_s)
