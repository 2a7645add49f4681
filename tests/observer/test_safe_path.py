"""Nothing of ours imports from the folder in which somebody happens to be."""

import re
import subprocess
from pathlib import Path

from hack.keeper import own_programs
from webhook.serving import observer_link
from webhook.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def test_the_observer_is_started_without_its_folder():
    assert observer_link.command(Settings())[1:4] == ("-P", "-m", "webhook.observer")


def test_the_image_keeps_its_folder_out_of_every_python():
    (last,) = re.findall(
        "^ENV .*PYTHONUNBUFFERED.*$", (ROOT / "Dockerfile").read_text(), re.MULTILINE
    )

    assert "PYTHONSAFEPATH=1" in last.split()


def test_the_checkouts_own_programs_run_nothing_of_the_folder_they_are_called_in(tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    program = tmp_path / "kubectl-fallback"
    program.write_text(own_programs()[program.name])
    program.chmod(0o755)

    found = subprocess.run(
        [program, "status", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (found.returncode, found.stderr) == (0, "")
