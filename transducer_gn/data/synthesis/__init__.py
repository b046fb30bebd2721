"""The mini corpus: sentences with ambiguous words, spoken by espeak-ng, in LibriSpeech's folder layout."""
