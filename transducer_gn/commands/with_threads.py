"""Imported before anything that needs torch: see `transducer_gn.common.threads`."""

from transducer_gn.common.threads import load_torch_for_training

load_torch_for_training()
