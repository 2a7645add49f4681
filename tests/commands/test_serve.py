"""What `serve` refuses before it starts."""

import pytest
from click.testing import CliRunner

from webhook.commands import serve


@pytest.mark.parametrize(
    ("option", "text", "told"),
    [
        ("--client-ca", None, "client_ca: {file}: No such file or directory\n"),
        ("--client-ca", "nothing", "client_ca: {file}: "),
        ("--path-segments", "[]", "path_segments: {file}: must be a list of at least one segment"),
    ],
)
def test_a_file_that_says_who_may_ask_must_be_readable(tmp_path, option, text, told):
    file = tmp_path / "given"
    if text is not None:
        file.write_text(text)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).touch()
    tls = [f"--tls-cert={tmp_path / 'tls.crt'}", f"--tls-key={tmp_path / 'tls.key'}"]

    result = CliRunner().invoke(serve.serve, [*tls, f"{option}={file}"])

    assert result.exit_code == 2
    assert told.format(file=file) in result.stderr


@pytest.mark.parametrize("command", [serve.serve, serve.control], ids=["serve", "control"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a list\n", "expected settings by name"),
        ("a: [\n", "expected the node content"),
        ("max_state_age: soon\n", "max_state_age: "),
        ("metrics_listen: nowhere\n", "nowhere"),
    ],
)
def test_settings_that_cannot_be_read_end_it_with_what_is_wrong(tmp_path, command, text, said):
    config = tmp_path / "settings.yaml"
    config.write_text(text)

    result = CliRunner().invoke(command, ["--config", str(config)])

    assert result.exit_code == 2
    assert result.output.startswith(f"{config}: ")
    assert said in result.output
