"""Images: root file systems that functions bring, written as OCI image layouts.

``debian`` makes a root from Debian packages, ``code`` lays a function over one, and ``layout``
writes and reads layouts.
"""

from uncia.functions.images.code import image_of, lay_over
from uncia.functions.images.debian import make_root
from uncia.functions.images.distribution import push
from uncia.layouts import Execution, Image, Layer, read_image, write_image

__all__ = [
    "Execution",
    "Image",
    "Layer",
    "image_of",
    "lay_over",
    "make_root",
    "push",
    "read_image",
    "write_image",
]
