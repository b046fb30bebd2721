#!/usr/bin/env bash
# From nothing to batches: makes or downloads a corpus, then manifests, features and token models.
# Every stage can be interrupted at any point; the next call goes on from there, and a finished stage takes no time.
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: ./prepare.sh [--corpus mini|mini-near|librispeech|librispeech-100|mini-librispeech|DIR] [options]

Corpora
  mini              (default) spoken here by espeak-ng, with ambiguous words; needs no network
  mini-near         the same with the settling word at once or after one word, so that waiting pays
  librispeech       all 960 hours; librispeech-100 and mini-librispeech are smaller
  DIR               anything in LibriSpeech's layout: DIR/PART/SPEAKER/CHAPTER/*.flac, *.trans.txt

Stages (--stage N, --stop-stage N; by default all)
  0  corpus         speak the mini corpus, or download LibriSpeech unless --dl-dir holds it
  1  manifests      list the parts, check all audio and transcripts
  2  noise          MUSAN, only with --musan
  3  features       filter banks, or those of --front-end; training parts also at the speeds --speed-factors
  4  token models   sentence pieces
  5  finish         combined shuffled training manifest, checks of everything
  6  shar           only with --shar: features and manifests in tar files, for many machines

Options
  --data-dir DIR        results (data/CORPUS, or data/CORPUS-FRONT-END)
  --dl-dir DIR          downloads (download); holds LibriSpeech/ or its parts, and musan/
  --nj N                processes at a time (number of cores); results do not depend on it
  --train, --dev, --test PART[,PART...]   which parts are for what, where their names do not say
  --skip-bad            leave bad utterances out instead of stopping with their list
  --vocab-sizes N[,N...]    token models ("250,32" for mini, "500,32" for LibriSpeech, "500" for DIR)
  --token-model TYPE    unigram (default, what icefall uses) or bpe
  --speed-factors F[,F...]  ("0.9,1.1"; "none", the default for mini)
  --tick-power N        precision of stored features (-10: 1e-3; -5 takes a third less space, for --front-end)
  --front-end KIND      filter-banks (default), or moonshine-tiny: a public pretrained encoder made streaming
  --front-end-file F    its ONNX file (DL-DIR/moonshine-tiny/encoder_model.onnx, fetched with npm if there is npm), or
                        front_end.pt of another data folder, to have the same standardisation, or a checkpoint
                        (epoch-N.pt) whose encoder was trained along
  --conf FILE           settings of the system, of which model.front_end counts here: layers, chunk, right context
  --musan               also prepare MUSAN noise
  --shar                also export as Shar; --shard-size N utterances per file (1000)
  --hours H             mini: hours of training audio (about 5.6 without it)
  --distances N[,N...]  mini: words between an ambiguous word and the one that settles it (all from 0 to 6)
  --seed N              mini: all text and audio depend on it (0)
HELP
}

fail() {
  echo "prepare.sh: $1" >&2
  exit 2
}

corpus=mini stage=0 stop_stage=100 data_dir= dl_dir=download nj=$(nproc)
train= dev= test= skip_bad=false musan=false shar=false shard_size=1000
vocab_sizes= token_model=unigram speed_factors= tick_power= hours= distances= seed=0
front_end=filter-banks front_end_file= conf=

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --skip-bad) skip_bad=true; shift; continue ;;
    --musan) musan=true; shift; continue ;;
    --shar) shar=true; shift; continue ;;
    --corpus | --stage | --stop-stage | --data-dir | --dl-dir | --nj | --train | --dev | --test | --vocab-sizes | \
      --token-model | --speed-factors | --tick-power | --hours | --distances | --seed | --shard-size | --front-end | \
      --front-end-file | --conf) ;;
    *) fail "unknown option $1; see ./prepare.sh --help" ;;
  esac
  [ $# -ge 2 ] || fail "$1 needs a value; see ./prepare.sh --help"
  name=${1#--}
  printf -v "${name//-/_}" '%s' "$2"
  shift 2
done

for number in stage stop_stage nj seed shard_size; do
  [[ ${!number} =~ ^[0-9]+$ ]] || fail "--${number//_/-} must be a whole number, not '${!number}'"
done
[ "$nj" -ge 1 ] || fail "--nj must be at least 1"
[ -n "$corpus" ] || fail "--corpus must not be empty"

# Paths that the user gave are relative to where the user is.
absolute() { case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dl_dir=$(absolute "$dl_dir")
[ -z "$data_dir" ] || data_dir=$(absolute "$data_dir")
[ -z "$conf" ] || conf=$(absolute "$conf")
suffix=
case $front_end in
  filter-banks) [ -z "$front_end_file" ] || fail "--front-end-file is for --front-end moonshine-tiny" ;;
  moonshine-tiny)
    suffix=-moonshine-tiny
    fetch_front_end=false
    [ -n "$front_end_file" ] || fetch_front_end=true
    front_end_file=$(absolute "${front_end_file:-$dl_dir/moonshine-tiny/encoder_model.onnx}")
    ;;
  *) fail "--front-end must be filter-banks or moonshine-tiny, not '$front_end'" ;;
esac
case $corpus in
  mini | mini-near)
    [ "$corpus" = mini ] || distances=${distances:-0,1}
    data_dir=${data_dir:-$here/data/$corpus$suffix}
    corpus_dir=$data_dir/corpus
    vocab_sizes=${vocab_sizes:-250,32}
    speed_factors=${speed_factors:-none}
    ;;
  librispeech | librispeech-100 | mini-librispeech)
    data_dir=${data_dir:-$here/data/$corpus$suffix}
    corpus_dir=$dl_dir/LibriSpeech
    [ -d "$corpus_dir" ] || ! compgen -G "$dl_dir/*/*/*/*.trans.txt" > /dev/null || corpus_dir=$dl_dir
    vocab_sizes=${vocab_sizes:-500,32}
    speed_factors=${speed_factors:-0.9,1.1}
    case $corpus in
      librispeech-100) train=${train:-train-clean-100} ;;
      mini-librispeech) train=${train:-train-clean-5} dev=${dev:-dev-clean-2} ;;
    esac
    ;;
  *)
    [ -d "$corpus" ] || fail "--corpus '$corpus' is neither a known corpus nor a folder; see ./prepare.sh --help"
    corpus_dir=$(absolute "$corpus")
    data_dir=${data_dir:-$here/data/$(basename "$corpus_dir")$suffix}
    vocab_sizes=${vocab_sizes:-500}
    speed_factors=${speed_factors:-0.9,1.1}
    ;;
esac
[ "$speed_factors" != none ] || speed_factors=

mkdir -p "$data_dir" 2> /dev/null && [ -w "$data_dir" ] || fail "cannot write to $data_dir; choose another --data-dir"
source "$here/local/environment.sh"

# One call at a time in a folder. The lock ends with the last process of a call, so a call that follows one that was
# killed also waits for what that one left running.
exec 9> "$data_dir/.lock"
flock --nonblock 9 || { echo "Waiting for another prepare.sh in $data_dir" >&2; flock 9; }

log() { echo "$(date '+%H:%M:%S') stage $1: $2"; }
runs() { [ "$stage" -le "$1" ] && [ "$1" -le "$stop_stage" ]; }
local_program() { python "$here/local/$1.py" "${@:2}"; }

if runs 0; then
  case $corpus in
    mini | mini-near)
      log 0 "mini corpus in $corpus_dir"
      local_program make_mini_corpus --corpus-dir "$corpus_dir" --nj "$nj" --seed "$seed" ${hours:+--hours "$hours"} \
        ${distances:+--distances "[$distances]"}
      ;;
    librispeech | librispeech-100 | mini-librispeech)
      log 0 "$corpus in $dl_dir"
      local_program download --dl-dir "$dl_dir" --corpus "$corpus"
      ;;
  esac
  ! $musan || local_program download --dl-dir "$dl_dir" --musan true
  [ "$front_end" = filter-banks ] || ! $fetch_front_end || local_program download --dl-dir "$dl_dir" --front-end true
fi

if runs 1; then
  log 1 "manifests of $corpus_dir"
  local_program make_manifests --corpus-dir "$corpus_dir" --data-dir "$data_dir" --nj "$nj" --skip-bad $skip_bad \
    ${train:+--train "[$train]"} ${dev:+--dev "[$dev]"} ${test:+--test "[$test]"}
fi

if runs 2 && $musan; then
  log 2 "noise in $dl_dir/musan"
  local_program make_noise_manifest --noise-dir "$dl_dir/musan" --data-dir "$data_dir" --nj "$nj" --skip-bad $skip_bad
fi

if runs 3; then
  log 3 "features ($front_end) in $data_dir"
  local_program compute_features --data-dir "$data_dir" --nj "$nj" --speed-factors "[$speed_factors]" \
    --front-end "$front_end" ${tick_power:+--tick-power "$tick_power"} \
    ${front_end_file:+--front-end-file "$front_end_file"} ${conf:+--conf "$conf"}
fi

if runs 4; then
  log 4 "token models of $vocab_sizes pieces"
  local_program train_token_model --data-dir "$data_dir" --vocab-sizes "[$vocab_sizes]" --token-model "$token_model"
fi

if runs 5; then
  log 5 "training manifest and checks"
  local_program finish_manifests --data-dir "$data_dir"
fi

if runs 6 && $shar; then
  log 6 "Shar in $data_dir/shar"
  local_program export_shar --data-dir "$data_dir" --shard-size "$shard_size" --nj "$nj" \
    ${tick_power:+--tick-power "$tick_power"}
fi
