#!/usr/bin/env bash
# The main job, from nothing: mini corpus, local baseline, a branch towards global normalisation and, as its fair
# opponent, the baseline continued for as many updates; then word error rates, emission times and a report that
# compares them. Any call can be stopped; the same call goes on from there. Arguments go to egs/librispeech/ASR/run.sh
# (see its --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec bash egs/librispeech/ASR/run.sh --corpus mini --only local,local-continued,alpha-0.3 --jobs 2 \
  --branch-epoch 3 --epochs 4 --beam 8 --latency-utterances 300 "$@"
