"""What `make up` puts on the PATH beside kubectl."""

import subprocess

import pytest

from hack.keeper import own_programs


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("kubectl-fallback", ["--version"], "kueue-fallback, version "),
        ("kubectl_complete-fallback", ["sta"], "status\t"),
    ],
)
def test_the_checkouts_own_programs_answer_kubectl(tmp_path, name, words, said):
    program = tmp_path / name
    program.write_text(own_programs()[name])
    program.chmod(0o755)

    found = subprocess.run([program, *words], capture_output=True, text=True, check=False)

    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(said)
