#!/usr/bin/env bash
# The main job, from nothing: mini corpus, local baseline, a branch towards global normalisation and, as its fair
# opponent, the baseline continued for as many updates; then word error rates, emission times and a report that
# compares them. With --corpus path/to/corpus --front-end moonshine-tiny the same for recordings of one's own, on a
# public pretrained encoder (docs/own-recordings.md). Any call can be stopped; the same call goes on from there.
# Arguments go to egs/librispeech/ASR/run.sh (see its --help).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
schedule="--branch-epoch 3 --epochs 4"
# Recordings of one's own have the schedule of their experiments, an average over the last epoch makes up for the
# learning rate that is still high, and paths are relative to where the user is.
case " $* " in
  *" --front-end"*) schedule="--avg 1" ;;
  *) cd "$here" ;;
esac
# shellcheck disable=SC2086
exec bash "$here/egs/librispeech/ASR/run.sh" --corpus mini --only local,local-continued,alpha-0.3 --jobs 2 \
  $schedule --beam 8 --latency-utterances 300 "$@"
