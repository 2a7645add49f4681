"""Sets of values that between them take both ways at every conditional of the templates."""

EVERYTHING = {
    "image.digest": f'"sha256:{"a" * 64}"',
    "imagePullSecrets": '[{"name": "pull"}]',
    "nodeSelector": '{"pool": "system"}',
    "tolerations": '[{"key": "system", "operator": "Exists"}]',
    "affinity": '{"nodeAffinity": {}}',
    "topologySpreadConstraints": (
        '[{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]'
    ),
    "runAsUser": "4711",
    "podAnnotations": '{"team": "batch"}',
    "podLabels": '{"cost-centre": "17"}',
    "hostNetwork": "true",
    "webhook.port": "10260",
    "webhook.annotations": '{"inject": "yes"}',
    "webhook.namespaceLabels": '{"fallback": "yes"}',
    "webhook.matchConditions": '[{"name": "gpu-only", "expression": "true"}]',
    "webhook.clientCA": (
        '{"pem": "-----BEGIN CERTIFICATE-----", "names": ["kube-apiserver", "front-proxy-client"]}'
    ),
    "webhook.pathSegments": '["a-segment-nobody-guesses-1", ""]',
    "certificates.mode": '"files"',
    "certificates.files.secretName": '"mine"',
    "certificates.files.caBundle": '"QQ=="',
    "settings": '{"keep_alive": 100}',
    "console": '{"expose": true, "audience": "console"}',
    "metrics.podMonitor": '{"enabled": true, "labels": {"release": "prometheus"}}',
    "metrics.serviceMonitor": '{"enabled": true, "labels": {"release": "prometheus"}}',
    "metrics.prometheusRule": (
        '{"enabled": true, "labels": {"release": "prometheus"},'
        ' "runbooks": "https://wiki.example/operations"}'
    ),
    "metrics.dashboard.enabled": "true",
    "networkPolicy": (
        '{"enabled": true, "reviewsFrom": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],'
        ' "consoleFrom": [{"podSelector": {}}], "scrapesFrom": [{"namespaceSelector": {}}],'
        ' "callsTo": [{"ipBlock": {"cidr": "10.96.0.1/32"}}],'
        ' "prometheus": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}'
    ),
    "metrics.prometheus": (
        '{"url": "https://prometheus.monitoring:9090", "caSecret": "monitoring-ca",'
        ' "tokenSecret": "monitoring-token", "queries": {"power": ""},'
        ' "labels": {"pod": "exported_pod"}}'
    ),
    "teamPolicies.enabled": "true",
}
NOTHING = {
    "nodeSelector": "null",
    "priorityClassName": '""',
    "podDisruptionBudget.enabled": "false",
    "controller.enabled": "false",
    "console.followJobs": "false",
    "policyRoles.create": "false",
    "admissionPolicies.create": "false",
    "crds.install": "false",
    "hooks.probe.enabled": "false",
    "hooks.unfinished.enabled": "false",
    "networkPolicy.enabled": "true",
}
CERT_MANAGER = {"certificates.mode": '"certManager"'}
CERT_MANAGER_ISSUER = {**CERT_MANAGER, "certificates.certManager.issuerRef.name": '"company"'}

EVERY_RENDERING = {
    "default": {},
    "everything": EVERYTHING,
    "nothing": NOTHING,
    "cert-manager": CERT_MANAGER,
    "cert-manager-issuer": CERT_MANAGER_ISSUER,
}
