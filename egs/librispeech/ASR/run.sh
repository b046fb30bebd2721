#!/usr/bin/env bash
# Every experiment of the paper, from data to report. Any call can be stopped; the same call goes on from there.
set -euo pipefail

usage() {
  cat <<'HELP'
Usage: egs/librispeech/ASR/run.sh [--corpus librispeech|mini|...] [options]

Stages (--stage N, --stop-stage N; by default all)
   0  prepare       prepare.sh
   1  local         baseline, locally normalised
   2  continued     the baseline continued from where the others branch off, with their batches: the fair opponent
   3  alpha         branches to alpha 0.8, 0.6, 0.3, 0.1, 0
   4  early         a branch to alpha 0.3 from an earlier epoch
   5  ablations     branches to alpha 0.3 with other numbers N of competitors, and without the regulariser
   6  lookahead     baseline that sees whole utterances
   7  finite-state  vocabulary 32: local, local continued, and global with the exact normaliser
   8  decode        word error rates of all runs at their best epoch
   9  latency       emission times of all runs, against the baseline
  10  report        tables, figures, one HTML page

Runs are EXP-ROOT/NAME: local, local-continued, alpha-0.8, alpha-0.6, alpha-0.3, alpha-0.1, alpha-0, alpha-0.3-early,
alpha-0.3-nN for each N of --counts, alpha-0.3-unregularised, lookahead,
lookahead-continued (where the baseline ends at the branch), finite-state-local, finite-state-continued, finite-state-global.
`--only NAME[,NAME...]` leaves all others out.

Options
  --corpus NAME         as for prepare.sh (librispeech); settings of conf/CORPUS.yaml and conf/CORPUS-global.yaml
  --world-size N        processes for each training, one per GPU (1)
  --jobs N              runs that are trained, decoded or measured side by side (1)
  --only NAME[,NAME...] only these runs
  --exp-root DIR        results (exp/CORPUS)
  --data-dir DIR        what prepare.sh makes (data/CORPUS)
  --dl-dir DIR          downloads, for prepare.sh (download)
  --conf FILE           settings of the model and of local training
  --global-conf FILE    what branches change
  --epochs N            epochs in all, those before a branch included (40; mini 15)
  --baseline-epochs N   epochs of the baseline (as --epochs; mini: up to the branch)
  --branch-epoch N      epoch that branches start from (10)
  --early-epoch N       epoch of the early branch (3)
  --counts N[,N...]     numbers of competitors other than that of --global-conf (2,5; mini 2,10)
  --sets SET[,SET...]   sets to decode (all dev and test sets)
  --latency-sets SET[,SET...]   sets for emission times (the same)
  --beam N              hypotheses in decoding (50)
  --latency-utterances N   emission times of so many utterances of each set (all)
  --display true|false  also measure when a live recogniser shows words (true)
  --baseline NAME       run that the report compares with (local-continued if there is one)
  --challenger NAME     run that the report puts first (the best on the dev set)
  --prepare-flags "..." further flags for prepare.sh, such as "--musan --nj 8"
  --train-flags "..."   further flags for every training
  --dry-run             only print the commands
HELP
}

fail() {
  echo "run.sh: $1" >&2
  exit 2
}

corpus=librispeech stage=0 stop_stage=100 world_size=1 jobs=1 only= exp_root= data_dir= dl_dir=download conf= global_conf=
epochs= baseline_epochs= branch_epoch=10 early_epoch=3 counts= sets= latency_sets= latency_utterances= beam=50 display=true baseline= challenger=
prepare_flags= train_flags= dry_run=false

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --dry-run) dry_run=true; shift; continue ;;
    --corpus | --stage | --stop-stage | --world-size | --jobs | --only | --exp-root | --data-dir | --dl-dir | --conf | \
      --global-conf | --epochs | --baseline-epochs | --branch-epoch | --early-epoch | --counts | --sets | --latency-sets | \
      --latency-utterances | --beam | \
      --display | --baseline | --challenger | --prepare-flags | --train-flags) ;;
    *) fail "unknown option $1; see run.sh --help" ;;
  esac
  [ $# -ge 2 ] || fail "$1 needs a value; see run.sh --help"
  name=${1#--}
  printf -v "${name//-/_}" '%s' "$2"
  shift 2
done

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
here=$(cd "$recipe/../../.." && pwd)
name=$(basename "$corpus")
case $corpus in
  mini)
    epochs=${epochs:-15}
    baseline_epochs=${baseline_epochs:-$branch_epoch}
    counts=${counts:-2,10}
    ;;
  *)
    epochs=${epochs:-40}
    baseline_epochs=${baseline_epochs:-$epochs}
    counts=${counts:-2,5}
    ;;
esac
[[ $counts =~ ^[0-9]+(,[0-9]+)*$ ]] || fail "--counts must be whole numbers with commas between them, not '$counts'"
# Corpora without settings of their own are treated as LibriSpeech.
settings=$name
[ -f "$here/conf/$settings.yaml" ] || settings=librispeech
conf=${conf:-$here/conf/$settings.yaml}
global_conf=${global_conf:-$here/conf/$settings-global.yaml}
exp_root=${exp_root:-$here/exp/$name}
data_dir=${data_dir:-$here/data/$name}
latency_sets=${latency_sets:-$sets}

for number in stage stop_stage world_size jobs epochs baseline_epochs branch_epoch early_epoch beam; do
  [[ ${!number} =~ ^[0-9]+$ ]] || fail "--${number//_/-} must be a whole number, not '${!number}'"
done
for file in "$conf" "$global_conf"; do
  [ -f "$file" ] || fail "there are no settings $file; name some with --conf and --global-conf"
done
[ "$branch_epoch" -le "$baseline_epochs" ] || fail "--branch-epoch must be at most --baseline-epochs, $baseline_epochs"
[ "$jobs" -ge 1 ] || fail "--jobs must be at least 1"

# Baselines that go on stay as they are: the paper's has no regulariser, those of the small corpora have.
unregularised=()
[ "$settings" != librispeech ] || unregularised=(--normalisation.regulariser 0)

$dry_run || source "$here/local/environment.sh"

own_threads=${OMP_NUM_THREADS:-}
share_cores() { # share_cores N: threads for processes of which N run side by side; with --jobs 1 all decide themselves
  [ "$jobs" -eq 1 ] || export OMP_NUM_THREADS=${own_threads:-$((($(nproc) + $1 - 1) / $1))}
}

log() { echo "$(date '+%H:%M:%S') stage $1: $2"; }
runs() { [ "$stage" -le "$1" ] && [ "$1" -le "$stop_stage" ]; }
wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# Several commands at a time. What they write comes with the name of their run. A stop reaches all of them, and they get
# the time to save what they have.
failed=false
running=0
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT

finish_one() {
  wait -n || failed=true
  running=$((running - 1))
}

finish_all() {
  while [ "$running" -gt 0 ]; do finish_one; done
  ! $failed || fail "a command failed, see above; the same call goes on from there"
}

launch() { # launch NAME COMMAND...
  if $dry_run; then
    printf '%q ' "${@:2}"
    echo
    return
  fi
  while [ "$running" -ge "$jobs" ]; do finish_one; done
  ! $failed || finish_all
  if [ "$jobs" -eq 1 ]; then
    "${@:2}" &
  else
    "${@:2}" > >(sed -u "s/^/[$1] /") 2>&1 &
  fi
  running=$((running + 1))
  [ "$jobs" -gt 1 ] || finish_all
}

train() { # train NAME EPOCHS FLAGS...
  wanted "$1" || return 0
  if [ -f "$exp_root/$1/epoch-$2.pt" ]; then
    echo "$1: all $2 epochs are done"
    return
  fi
  read -ra further <<< "$train_flags"
  launch "$1" python "$recipe/train.py" --config "$conf" "${@:3}" --data.folder "$data_dir" --exp-dir "$exp_root/$1" \
    --training.epochs "$2" --world-size "$world_size" ${further[@]+"${further[@]}"}
}

branch() { # branch NAME EPOCH FLAGS...: off the local baseline
  train "$1" "$epochs" --config "$global_conf" --branch-from "$exp_root/local/epoch-$2.pt" "${@:3}"
}

trained_runs() {
  local run count
  local names="local local-continued $(echo alpha-{0.8,0.6,0.3,0.1,0}) alpha-0.3-early"
  for count in ${counts//,/ }; do names+=" alpha-0.3-n$count"; done
  for run in $names alpha-0.3-unregularised lookahead{,-continued} finite-state-{local,continued,global}; do
    if wanted "$run" && { $dry_run || [ -f "$exp_root/$run/best.json" ]; }; then echo "$run"; fi
  done
}

# The shell reads a function as a whole before it runs it, and nothing after the last line: this file may change while hours
# of training go on.
all_stages() {
  if runs 0; then
    log 0 "data in $data_dir"
    read -ra further <<< "$prepare_flags"
    if $dry_run; then
      echo "./prepare.sh --corpus $corpus --data-dir $data_dir --dl-dir $dl_dir $prepare_flags"
    else
      "$here/prepare.sh" --corpus "$corpus" --data-dir "$data_dir" --dl-dir "$dl_dir" ${further[@]+"${further[@]}"}
    fi
  fi

  if runs 1; then
    log 1 "local baseline, $baseline_epochs epochs"
    # All others wait for it, so it has the machine to itself.
    share_cores "$world_size"
    train local "$baseline_epochs"
    finish_all
  fi
  share_cores "$jobs"

  if runs 2; then
    log 2 "local baseline continued after epoch $branch_epoch"
    branch local-continued "$branch_epoch" --normalisation.alpha 1 ${unregularised[@]+"${unregularised[@]}"}
  fi

  if runs 3; then
    log 3 "branches after epoch $branch_epoch, by alpha"
    for alpha in 0.8 0.6 0.3 0.1 0; do
      branch "alpha-$alpha" "$branch_epoch" --normalisation.alpha "$alpha"
    done
  fi

  if runs 4; then
    log 4 "early branch, after epoch $early_epoch"
    branch alpha-0.3-early "$early_epoch" --normalisation.alpha 0.3
  fi

  if runs 5; then
    log 5 "other numbers of competitors; no regulariser"
    for count in ${counts//,/ }; do
      branch "alpha-0.3-n$count" "$branch_epoch" --normalisation.alpha 0.3 --competitors.count "$count"
    done
    branch alpha-0.3-unregularised "$branch_epoch" --normalisation.alpha 0.3 --normalisation.regulariser 0
  fi

  if runs 6; then
    log 6 "lookahead"
    train lookahead "$baseline_epochs" --config "$here/conf/lookahead.yaml"
    # Where the baseline ends at the branch, this one goes on as the baseline does.
    if [ "$baseline_epochs" -lt "$epochs" ]; then
      finish_all
      train lookahead-continued "$epochs" --config "$global_conf" --config "$here/conf/lookahead.yaml" --normalisation.alpha 1 \
        ${unregularised[@]+"${unregularised[@]}"} --branch-from "$exp_root/lookahead/epoch-$branch_epoch.pt"
    fi
  fi

  if runs 7; then
    log 7 "finite-state predictor, vocabulary 32"
    # Letters come thicker than words, so blanks are rarer. Two of them per frame of 40 ms are enough, and take less time.
    finite_state=(--model.vocab_size 32 --model.predictor.kind finite-state --model.joiner.blank_prior 0.6
      --normalisation.exact_tokens_per_frame 2)
    [ "$settings" != librispeech ] || finite_state=(--config "$here/conf/finite-state-32.yaml")
    train finite-state-local "$baseline_epochs" "${finite_state[@]}"
    finish_all
    parent=$exp_root/finite-state-local/epoch-$branch_epoch.pt
    train finite-state-continued "$epochs" --config "$global_conf" "${finite_state[@]}" --normalisation.alpha 1 \
      ${unregularised[@]+"${unregularised[@]}"} --branch-from "$parent"
    train finite-state-global "$epochs" --config "$global_conf" "${finite_state[@]}" --normalisation.alpha 0.3 \
      --normalisation.exact true --branch-from "$parent"
  fi
  finish_all

  if runs 8; then
    log 8 "decoding with beam $beam"
    for run in $(trained_runs); do
      launch "$run" python "$recipe/decode.py" --exp-dir "$exp_root/$run" --data-dir "$data_dir" --beam "$beam" \
        ${sets:+--sets "[$sets]"}
    done
    finish_all
  fi

  if runs 9; then
    log 9 "emission times"
    for run in $(trained_runs); do
      launch "$run" python "$recipe/compute_latency.py" --exp-dir "$exp_root/$run" --data-dir "$data_dir" --beam "$beam" \
        --display "$display" ${latency_sets:+--sets "[$latency_sets]"} ${latency_utterances:+--utterances "$latency_utterances"}
    done
    finish_all
  fi

  if runs 10; then
    log 10 "report in $exp_root/report"
    if [ -z "$baseline" ] && [ -f "$exp_root/local-continued/best.json" ]; then baseline=local-continued; fi
    launch report python "$recipe/report.py" --exp-root "$exp_root" --data-dir "$data_dir" \
      ${baseline:+--baseline "$baseline"} ${challenger:+--challenger "$challenger"}
    finish_all
  fi
}

all_stages; exit
