"""The checks around installs and uninstalls: what they run, with which rights, for how long."""

import pytest

HOOKS = {"probe": "post-install,post-upgrade,post-rollback", "unfinished": "pre-delete"}


def of(rendering, part):
    name = f"kueue-fallback-{part}"
    return {kind: each for (kind, found), each in rendering.objects.items() if found == name}


@pytest.mark.parametrize("part", HOOKS)
def test_a_hooks_rights_come_before_its_job_and_go_with_it(render, part):
    objects = of(render(), part)
    annotations = {kind: each["metadata"]["annotations"] for kind, each in objects.items()}

    job = annotations.pop("Job")
    assert all(int(each["helm.sh/hook-weight"]) < 0 for each in annotations.values())
    assert job["helm.sh/hook-weight"] == "0"
    for each in (job, *annotations.values()):
        assert each["helm.sh/hook"] == HOOKS[part]
        assert each["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"


@pytest.mark.parametrize("part", HOOKS)
def test_a_hook_ends_by_itself_and_shows_what_it_said(render, part):
    job = of(render(), part)["Job"]

    deadline = {"probe": 180, "unfinished": 60}[part]
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, deadline)
    assert job["spec"]["ttlSecondsAfterFinished"] == 3600
    assert job["metadata"]["annotations"]["helm.sh/hook-output-log-policy"] == (
        "hook-succeeded,hook-failed"
    )


def test_the_probe_may_create_jobs_in_the_namespace_of_its_dry_run_alone(render):
    objects = of(render({"hooks.probe": '{"namespace": "team", "waitSeconds": 30}'}), "probe")

    assert objects["Role"]["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}
    ]
    assert {objects[kind]["metadata"]["namespace"] for kind in ("Role", "RoleBinding")} == {"team"}
    assert objects["RoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "kueue-fallback-probe", "namespace": "ours"}
    ]
    (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["probe", "--namespace", "team", "--wait", "30"]


@pytest.mark.parametrize("namespace", ["kube-system", "kueue-system", "ours"])
def test_a_probe_that_nobody_would_see_is_refused(template, namespace):
    result = template({"hooks.probe.namespace": f'"{namespace}"'})

    assert result.returncode == 1
    why = f"Jobs of {namespace} are never sent to the webhook"
    assert f"hooks.probe.namespace: {why}" in result.stderr


def test_the_list_before_an_uninstall_may_list_jobs_and_start_held_ones(render):
    objects = of(render(), "unfinished")

    assert objects["ClusterRole"]["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "patch"]}
    ]
    assert "namespace" not in objects["ClusterRole"]["metadata"]
    (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["unfinished", "--release"]


@pytest.mark.parametrize("part", HOOKS)
def test_hooks_are_not_scraped_and_get_no_reviews(render, part):
    rendering = render({"metrics.podMonitor.enabled": "true"})
    labels = of(rendering, part)["Job"]["spec"]["template"]["metadata"]["labels"].items()

    selectors = [
        rendering.one("Service")["spec"]["selector"],
        rendering.one("PodMonitor")["spec"]["selector"]["matchLabels"],
    ]
    assert not any(selector.items() <= labels for selector in selectors)


@pytest.mark.parametrize("part", HOOKS)
def test_a_hook_can_be_switched_off(render, part):
    assert of(render({f"hooks.{part}.enabled": "false"}), part) == {}


def test_a_probe_of_a_kind_that_is_not_switched_on_is_refused(template, render):
    result = template({"kinds": '["RayJob"]'})

    assert result.returncode != 0
    assert "kinds: without Job the check after an install would fail" in result.stderr
    assert of(render({"kinds": '["RayJob"]', "hooks.probe.enabled": "false"}), "probe") == {}
