"""What the observer imports, which all processes of a pod share and wait for at their start."""

import subprocess
import sys

PROGRAM = """
import sys
from webhook.commands import serve
from webhook.observer import process

print(*(name for name in sys.argv[1:] if name in sys.modules))
"""


def test_metrics_web_pages_and_the_kubernetes_client_are_imported_only_by_who_needs_them():
    words = (sys.executable, "-c", PROGRAM, "prometheus_client", "flask", "kubernetes", "webhook")

    found = subprocess.run(words, capture_output=True, text=True, check=True)

    assert found.stdout == "webhook\n"
