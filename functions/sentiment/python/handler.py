"""Says whether sentences are for or against something."""

import re

from textblob import TextBlob
from uncia_envelope import Parameter, enveloped

# With the polarity that the lexicon of the package pattern publishes for their adjectives.
KNOWN = [
    ("The food was great.", 0.8),
    ("We had a good table.", 0.7),
    ("But the music was terrible.", -1.0),
    ("Did they close the door?", 0.0),
]


@enveloped({"sentences": Parameter(40, 1, 10_000)})
def handler(sentences):
    chosen = [KNOWN[index % len(KNOWN)] for index in range(sentences)]
    text = " ".join(sentence for sentence, _ in chosen)
    parts = re.findall(r"[^.!?]+[.!?]", text)
    feelings = [TextBlob(sentence).sentiment for sentence in parts]
    polarity = sum(each.polarity for each in feelings) / len(feelings)
    subjectivity = sum(each.subjectivity for each in feelings) / len(feelings)
    expected = sum(value for _, value in chosen) / sentences
    valid = len(parts) == sentences and abs(polarity - expected) < 1e-9
    return {"sentences": len(parts), "polarity": polarity, "subjectivity": subjectivity}, valid
