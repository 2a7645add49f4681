"""What the API server is told: which Jobs to send, and what to do without an answer."""

KUEUES_CONFIGURATION = "kueue-mutating-webhook-configuration"


def webhooks(rendering):
    return rendering.one("MutatingWebhookConfiguration")["webhooks"]


def expected(operation, **more):
    return {
        "name": f"{operation.lower()}.kueue-fallback.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": "kueue-fallback",
                "namespace": "ours",
                "path": "/mutate",
                "port": 443,
            }
        },
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 2,
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": [
                        "kube-system",
                        "kube-public",
                        "kube-node-lease",
                        "kueue-system",
                        "ours",
                    ],
                }
            ]
        },
        "rules": [
            {
                "apiGroups": ["batch"],
                "apiVersions": ["v1"],
                "operations": [operation],
                "resources": ["jobs"],
                "scope": "Namespaced",
            }
        ],
        **more,
    }


def test_it_is_called_before_kueues_webhook(render):
    name = render().one("MutatingWebhookConfiguration")["metadata"]["name"]

    assert name < KUEUES_CONFIGURATION


def test_every_new_job_is_sent_and_only_decided_jobs_when_they_change(render):
    decided = {"matchExpressions": [{"key": "kueue-fallback.dev/option", "operator": "Exists"}]}

    assert webhooks(render()) == [
        expected("CREATE"),
        expected("UPDATE", objectSelector=decided),
    ]


def test_the_certificate_authority_and_annotations_are_given_where_set(render):
    rendering = render(
        {"webhook.caBundle": '"QQ=="', "webhook.annotations": '{"inject": "ours/tls"}'}
    )

    assert [each["clientConfig"]["caBundle"] for each in webhooks(rendering)] == ["QQ==", "QQ=="]
    metadata = rendering.one("MutatingWebhookConfiguration")["metadata"]
    assert metadata["annotations"] == {"inject": "ours/tls"}


def test_failure_policy_time_out_and_excluded_namespaces_are_values(render):
    rendering = render(
        {
            "webhook.failurePolicy": '"Fail"',
            "webhook.timeoutSeconds": "5",
            "webhook.excludedNamespaces": '["kube-system", "ours"]',
            "kueue.namespace": '"kueue"',
        }
    )

    first = webhooks(rendering)[0]
    (expression,) = first["namespaceSelector"]["matchExpressions"]
    assert (first["failurePolicy"], first["timeoutSeconds"]) == ("Fail", 5)
    assert expression["values"] == ["kube-system", "ours", "kueue"]
