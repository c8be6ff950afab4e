"""Features: images, texts and signals as a handful of discrete columns, before anything is counted.

A public extractor turns a record into numbers, a public codebook turns the numbers into codes. The codebook is fitted
on public records only; its digest is part of the schema, hence of the plan, so all clients use the same.
"""

from .codebook import Codebook as Codebook
from .fitting import fit as fit
from .images import IMAGE_COLUMNS as IMAGE_COLUMNS
from .images import describe_images as describe_images
from .texts import TEXT_COLUMNS as TEXT_COLUMNS
from .texts import describe_texts as describe_texts
