"""Who speaks in the mini corpus: espeak-ng voices, each with several speakers of their own pitch and speed."""

import random
from dataclasses import dataclass

from transducer_gn.common.seeds import stable_seed

# Voices that share their formants (linda and belinda, steph and steph2, ...) always stand in the same part, so that
# no dev or test voice was heard in training. Left out: whispers, robots, echoes, and near copies of the plain voice.
VOICES = {
    "train": (
        "f1 f2 f4 f5 Annie Alicia linda belinda aunty m1 m2 m4 m5 m7 m8 Alex Andy Denis Gene Gene2 Henrique Hugo "
        "miguel Jacky boris ed iven2 iven3 adam benjamin edward pablo pedro marcelo gustave sandro shelby"
    ).split(),
    "dev": "anika steph steph2 Storm ian Nguyen paul klatt4".split(),
    "test": "f3 Andrea grandma m3 m6 Mike antonio rob robert quincy Mario Michael john grandpa max victor".split(),
}


@dataclass(frozen=True)
class Speaker:
    """A voice with its usual speed (words per minute) and pitch (50 is the voice's own)."""

    id: str
    voice: str
    rate: int
    pitch: int


def speakers_of(part: str, per_voice: int, seed: int) -> list[Speaker]:
    """Return the speakers of `part` ("train", "dev" or "test"), `per_voice` for each of its voices.

    Ids start at 1000, 2000 and 3000, so that a number says the part.
    """
    first = {"train": 1000, "dev": 2000, "test": 3000}[part]
    speakers: list[Speaker] = []
    for turn in range(per_voice):
        for voice in VOICES[part]:
            draw = random.Random(stable_seed("speaker", seed, voice, turn))
            number = first + len(speakers)
            speakers.append(Speaker(str(number), voice, rate=draw.randint(200, 270), pitch=draw.randint(38, 62)))
    return speakers
