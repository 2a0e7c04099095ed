"""Reads the text in a picture that it has drawn."""

import io
import os
import subprocess

from PIL import Image, ImageDraw, ImageFont
from uncia_envelope import Parameter, enveloped

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "seven",
    "wizards",
    "make",
    "toxic",
    "brew",
]
WORDS_A_LINE = 6
SIZE, HEIGHT = 40, 60


def drawn(lines):
    """Black text on white, as a PNG."""
    image = Image.new("L", (1_000, HEIGHT * (len(lines) + 1)), 255)
    font = ImageFont.load_default(SIZE)
    for number, line in enumerate(lines):
        ImageDraw.Draw(image).text((30, HEIGHT // 2 + HEIGHT * number), line, font=font, fill=0)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@enveloped({"lines": Parameter(4, 1, 40)})
def handler(lines):
    words = [WORDS[index % len(WORDS)] for index in range(lines * WORDS_A_LINE)]
    texts = [
        " ".join(words[start : start + WORDS_A_LINE])
        for start in range(0, len(words), WORDS_A_LINE)
    ]
    read = subprocess.run(
        ["tesseract", "stdin", "stdout", "--psm", "6", "-l", "eng"],
        input=drawn(texts),
        capture_output=True,
        check=False,
        # It starts a thread for each CPU otherwise, also where it may use a part of one.
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
    )
    if read.returncode:
        raise RuntimeError(f"tesseract: {read.stderr.decode(errors='replace').strip()[-500:]}")
    text = read.stdout.decode()
    return {"text": text}, text.split() == words
