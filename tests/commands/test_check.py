import json

import pytest
import yaml
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.model import policies
from tests.model.team_policies import team_policy
from webhook.commands.check import command

VALID = yaml.safe_dump(policies.VALID, sort_keys=False)
NOTE = (
    "spec.options[1].adaptation.env.RUN_ENV: undo needs --recreate for Jobs that do not set "
    "RUN_ENV to one value in all their containers\n"
)
UNKNOWN = (
    "spec.options[1]: FinishTime sends no Job there until some have run there, as it has no "
    "slowdown\n"
)


def notes(line, name="policy.yaml"):
    """What is said of the valid policy whose variable is in a line of a file."""
    return f"{name}:{line}: {NOTE}{name}:{line - 7}: {UNKNOWN}"


def run(*arguments, stdin=None):
    result = CliRunner().invoke(command, arguments, input=stdin)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, name="policy.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return write


def test_a_valid_policy_is_said_to_be_valid(file):
    assert run("-f", file(VALID)) == (
        0,
        "policy.yaml:1: FallbackPolicy light-gpu is valid\n",
        notes(20),
    )


def test_a_mistake_is_named_with_file_line_path_and_what_was_expected(file):
    text = VALID.replace("mode: Enforce", "mode: Enforced")

    code, out, _ = run("-f", file(text))

    line = text.splitlines().index("  mode: Enforced") + 1
    assert code == 2
    assert out.splitlines()[0] == (
        f"policy.yaml:{line}: spec.mode: expected 'Observe', 'Advise' or 'Enforce', got 'Enforced'"
    )


def test_a_missing_field_is_named_at_the_line_of_what_lacks_it(file):
    text = "apiVersion: kueue-fallback.dev/v1alpha1\nkind: FallbackPolicy\nmetadata: {name: a}\n"
    text += "spec:\n  match: {jobSelector: {}}\n"

    _, out, _ = run("-f", file(text))

    assert out.splitlines()[0] == "policy.yaml:4: spec.options: expected, but not there"


def test_several_documents_are_checked_and_other_kinds_skipped(file):
    broken = VALID.replace("light-gpu\nspec", "other\nspec").replace("mode", "mdoe")
    text = f"---\n{VALID}---\nkind: Job\napiVersion: batch/v1\n---\n---\n{broken}"

    code, out, err = run("-f", file(text))

    assert code == 2
    assert [line.split(": ", 1)[1] for line in out.splitlines()] == [
        "FallbackPolicy light-gpu is valid",
        "spec.mdoe: no such field",
    ]
    skipped = "policy.yaml:23: skipped: Job is not a FallbackPolicy\n"
    assert err == notes(21) + skipped


def test_a_mistake_in_a_list_has_the_line_of_its_item(file):
    broken = policies.policy(mode="Foo")
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [policies.VALID, broken]})

    _, out, _ = run("-f", file(text))

    line = text.splitlines().index("    mode: Foo") + 1
    assert [found.partition(": expected")[0] for found in out.splitlines()] == [
        "policy.yaml:3: FallbackPolicy light-gpu is valid",
        f"policy.yaml:{line}: spec.mode",
    ]


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("-", 0, "stdin:1: FallbackPolicy light-gpu is valid\n"),
        ("/nowhere.yaml", 2, "/nowhere.yaml: No such file or directory\n"),
    ],
)
def test_standard_input_is_read_and_a_missing_file_is_named(name, code, text):
    assert run("-f", name, stdin=VALID)[:2] == (code, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [b\nc: d\n", "policy.yaml:2: not YAML: expected ',' or ']', but got ':'"),
        ("", "policy.yaml: no FallbackPolicy in it"),
        ("hello", "policy.yaml:1: expected an object"),
        ("kind: FallbackPolicy", "policy.yaml:1: apiVersion not set"),
        (
            "kind: FallbackPolicy\napiVersion: batch/v2",
            'policy.yaml:2: no matches for kind "FallbackPolicy" in version "batch/v2"',
        ),
        ("&a [*a]", "policy.yaml:1: deeper than 100 levels"),
    ],
)
def test_a_file_that_holds_no_policy_is_a_clear_error(file, text, message):
    code, out, _ = run("-f", file(text))

    assert (code, out.splitlines()[0]) == (2, message)


def test_json_holds_each_finding(file):
    code, out, _ = run("-f", file(VALID.replace("mode: Enforce", "mdoe: Enforce")), "-o", "json")

    assert code == 2
    assert json.loads(out) == {
        "valid": False,
        "findings": [
            {
                "kind": "error",
                "file": "policy.yaml",
                "line": 6,
                "path": "spec.mdoe",
                "message": "spec.mdoe: no such field",
            }
        ],
    }


def test_a_key_given_twice_is_noted_and_the_last_one_counts(file):
    text = VALID.replace("  mode: Enforce", "  mode: Foo\n  mode: Enforce")

    code, _, err = run("-f", file(text))

    repeated = 'policy.yaml:7: spec.mode: key "mode" already set in map: the last one counts\n'
    assert (code, err) == (0, repeated + notes(21))


def test_a_plain_no_is_noted_as_a_boolean(file):
    code, out, err = run("-f", file(VALID.replace("RUN_ENV: cpu", "RUN_ENV: no")))

    path = "policy.yaml:20: spec.options[1].adaptation.env.RUN_ENV"
    assert (code, out) == (2, f"{path}: expected a string, got a boolean\n")
    assert err == f"{path}: no is read as false: a text needs quotes\n"


POLICIES = "/apis/kueue-fallback.dev/v1alpha1/fallbackpolicies"
STORED = policies.merged(policies.VALID, {"metadata": {"resourceVersion": "7"}})
INVALID = {
    "message": "is invalid",
    "details": {
        "causes": [
            {"field": "spec.mode", "reason": "FieldValueNotSupported", "message": "Unsupported"},
            {"field": "<nil>", "reason": "FieldValueInvalid", "message": "not checked"},
        ]
    },
}
STRICT = {"message": 'strict decoding error: unknown field "spec.foo", unknown field "a"'}
NO_RIGHT = {"message": 'f is forbidden: User "u" cannot create resource "f"'}
BY_A_PLUGIN = {"message": "admission policy denied it"}


@pytest.fixture
def asked(file, tmp_path):
    """Check the valid policy on a server that answers POST, GET and PUT so."""

    def run_on(*words, **answers):
        calls = []

        def answer(method, url, body):
            calls.append((method, url, body))
            status, found = answers.get(method, (404, {}))
            return status, [], found

        with serving(answer, tmp_path) as kubeconfig:
            given = ("-f", file(VALID), "--server", "--kubeconfig", kubeconfig)
            return run(*given, *words), calls

    return run_on


def test_the_api_server_is_asked_by_a_dry_run(asked):
    (code, out, _), calls = asked(POST=(201, policies.VALID))

    assert (code, out.splitlines()[1]) == (
        0,
        "policy.yaml:1: API server: FallbackPolicy light-gpu is valid",
    )
    url = f"{POLICIES}?dryRun=All&fieldValidation=Strict"
    assert calls[0] == ("POST", url, policies.VALID)


@pytest.mark.parametrize(
    ("policy", "queues", "where"),
    [
        (policies.VALID, "localqueues", "any namespace"),
        (
            {**team_policy(), "metadata": {"name": "light", "namespace": "mine"}},
            "namespaces/mine/localqueues",
            "namespace mine",
        ),
    ],
)
def test_a_localqueue_that_is_missing_is_a_note_and_no_mistake(
    file, tmp_path, policy, queues, where
):
    answers = {
        "/apis/kueue.x-k8s.io": {"versions": [{"version": "v1beta2"}]},
        f"/apis/kueue.x-k8s.io/v1beta2/{queues}": {"items": [{"metadata": {"name": "cpu-lq"}}]},
    }

    def answer(method, url, body):
        return 200, [], body if method == "POST" else answers[url.partition("?")[0]]

    with serving(answer, tmp_path) as kubeconfig:
        code, _, err = run(
            "-f", file(yaml.safe_dump(policy)), "--server", "--kubeconfig", kubeconfig
        )

    missing = [line.partition(": ")[2] for line in err.splitlines() if "LocalQueue" in line]
    assert code == 0
    assert missing == [
        f"spec.options[0].queue: there is no LocalQueue gpu-lq in {where} (there is cpu-lq)"
    ]


def test_a_policy_that_is_there_already_is_tried_as_an_update(asked):
    (code, _, _), calls = asked(
        POST=(409, {"message": "already exists"}), GET=(200, STORED), PUT=(200, STORED)
    )

    url = f"{POLICIES}/light-gpu?dryRun=All&fieldValidation=Strict"
    assert code == 0
    assert [call for call in calls if call[0] == "PUT"] == [("PUT", url, STORED)]


def test_a_status_that_is_written_meanwhile_is_no_mistake(file, tmp_path):
    writes = iter([(409, {"message": "the object has been modified"}), (200, STORED)])
    answers = {"POST": (409, {"message": "already exists"}), "GET": (200, STORED)}

    def answer(method, url, body):
        status, stored = next(writes) if method == "PUT" else answers[method]
        return status, [], stored

    with serving(answer, tmp_path) as kubeconfig:
        code, out, _ = run("-f", file(VALID), "--server", "--kubeconfig", kubeconfig)

    assert (code, "API server: FallbackPolicy light-gpu is valid" in out) == (0, True)


@pytest.mark.parametrize(
    ("metadata", "namespace"),
    [({"name": "light"}, "mine"), ({"name": "light", "namespace": "theirs"}, "theirs")],
)
def test_a_teams_policy_is_tried_in_its_namespace(file, tmp_path, metadata, namespace):
    asked = []

    def answer(method, path, body):
        asked.append((method, path.partition("?")[0]))
        return (201, [], body) if method == "POST" else (404, [], {})

    own = {**team_policy(), "metadata": metadata}
    name = file(yaml.safe_dump(own))
    with serving(answer, tmp_path) as kubeconfig:
        done = run("-f", name, "--server", "-n", "mine", "--kubeconfig", kubeconfig)

    place = f"/apis/kueue-fallback.dev/v1alpha1/namespaces/{namespace}/teamfallbackpolicies"
    assert done[0] == 0
    assert ("POST", place) in asked


@pytest.mark.parametrize("metadata", [None, 5, {"name": "light", "namespace": 5}])
def test_a_teams_policy_without_a_proper_place_is_a_mistake(file, tmp_path, metadata):
    name = file(yaml.safe_dump({**team_policy(), "metadata": metadata}))
    with serving(lambda *_: (400, [], {"message": "no"}), tmp_path) as kubeconfig:
        done = run("-f", name, "--server", "--kubeconfig", kubeconfig)

    assert done[0] == 2
    assert "metadata" in done[1]


@pytest.mark.parametrize(
    ("answer", "lines"),
    [
        ((422, INVALID), ["6: API server: spec.mode: Unsupported", "1: API server: not checked"]),
        (
            (400, STRICT),
            ["5: API server: spec.foo: unknown field", "1: API server: a: unknown field"],
        ),
        ((400, {"message": "no JSON"}), ["1: API server: no JSON"]),
        ((403, BY_A_PLUGIN), ["1: API server: admission policy denied it"]),
    ],
)
def test_what_the_api_server_refuses_is_a_mistake_in_its_own_words(asked, answer, lines):
    (code, out, _), _ = asked(POST=answer)

    assert (code, out.splitlines()[1:]) == (2, [f"policy.yaml:{line}" for line in lines])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((403, NO_RIGHT), NO_RIGHT["message"]),
        ((404, {}), "the cluster has no FallbackPolicy: its CRD is not installed"),
        ((503, {"message": "later"}), "503 later"),
    ],
)
def test_a_cluster_that_cannot_be_asked_ends_with_1(asked, answer, text):
    (code, out, err), _ = asked(POST=answer)

    assert (code, out, err) == (1, "", f"{text}\n")
