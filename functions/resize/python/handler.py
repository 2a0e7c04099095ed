"""Makes a thumbnail: decodes a JPEG, resizes it, encodes the result, as image services do all day.

The picture is made here, the same every time: a horizontal gradient in red, a vertical one in
green and a radial one in blue.
"""

import io
import time

from PIL import Image, ImageStat
from uncia_envelope import Parameter, enveloped

# Resampling keeps the mean of each channel; JPEG moves it by less than this (of 255), most in tiny
# pictures, whose colours it stores at half the resolution.
MEAN_TOLERANCE = 2.0
QUALITY = 90


def picture(width, height):
    """The source picture as JPEG."""
    down = Image.linear_gradient("L")
    channels = (down.transpose(Image.Transpose.ROTATE_90), down, Image.radial_gradient("L"))
    image = Image.merge(
        "RGB", [c.resize((width, height), Image.Resampling.BILINEAR) for c in channels]
    )
    return encode(image)


def encode(image):
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def decode(data):
    image = Image.open(io.BytesIO(data), formats=["JPEG"])
    image.load()
    return image


def means(image):
    return [round(mean, 3) for mean in ImageStat.Stat(image).mean]


@enveloped(
    {
        "width": Parameter(1280, 16, 8192),
        "height": Parameter(960, 16, 8192),
        "to_width": Parameter(320, 16, 8192),
        "to_height": Parameter(240, 16, 8192),
    }
)
def handler(width, height, to_width, to_height):
    made = time.monotonic_ns()
    source = picture(width, height)
    begun = time.monotonic_ns()
    image = decode(source)
    thumbnail = encode(image.resize((to_width, to_height), Image.Resampling.LANCZOS))
    done = time.monotonic_ns()
    check = decode(thumbnail)
    expected, found = means(image), means(check)
    right_size = image.size == (width, height) and check.size == (to_width, to_height)
    right_colours = all(abs(a - b) <= MEAN_TOLERANCE for a, b in zip(expected, found))
    # A mean survives a picture turned round; red and green rising to the far corner do not.
    near, far = check.getpixel((0, 0)), check.getpixel((to_width - 1, to_height - 1))
    right_way = far[0] - near[0] > 128 and far[1] - near[1] > 128
    result = {
        "width": check.width,
        "height": check.height,
        "mean": found,
        "source_mean": expected,
        "source_bytes": len(source),
        "thumbnail_bytes": len(thumbnail),
        "make_ns": begun - made,
        "resize_ns": done - begun,
    }
    return result, right_size and right_colours and right_way
