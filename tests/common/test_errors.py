"""Invariant: a user's mistake ends in one sentence on standard error and exit code 2; a bug keeps its traceback."""

import pytest

from transducer_gn.common.errors import UserError, run_script


def test_user_error_is_one_sentence_and_exit_code_2(capsys):
    def main():
        raise UserError("conf/mini.yaml: no such file; give --config")

    with pytest.raises(SystemExit) as stop:
        run_script(main)
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith(": conf/mini.yaml: no such file; give --config\n")


def test_other_errors_pass_through():
    def main():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run_script(main)
