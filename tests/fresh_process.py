"""Work in a process of its own: what espeak-ng says depends on what its process said before."""

from multiprocessing import get_context

from transducer_gn.synthetic.espeak import Espeak, Prosody


def in_fresh_process(function, *arguments):
    """What a function gives in a process that has done nothing else."""
    pool = get_context("fork").Pool(1)
    try:
        return pool.apply(function, arguments)
    finally:
        # Let it end by itself: it inherits how this process takes the signal that would end it.
        pool.close()
        pool.join()


def say_some_words(voice: str) -> bytes:
    espeak = Espeak(voice)
    return b"".join(espeak.say(word, Prosody(220, 45, 60)).tobytes() for word in ("mail", "order", "beside"))
