"""Kueue's own objects: its Deployment as its chart makes it, and its configuration."""

VOLUMES = [
    {"name": "cert", "secret": {"secretName": "kueue-webhook-server-cert"}},
    {"name": "manager-config", "configMap": {"name": "kueue-manager-config"}},
]
ARGUMENTS = ["--config=/controller_manager_config.yaml", "--zap-log-level=2"]
IMAGE = "registry.k8s.io/kueue/kueue:v0.19.2"


def deployment(*, image=IMAGE, args=ARGUMENTS, volumes=VOLUMES, command=("/manager",), also=()):
    manager = {"name": "manager", "image": image, "command": list(command), "args": args}
    pod = {"containers": [*also, manager], "volumes": volumes}
    metadata = {"name": "kueue-controller-manager", "namespace": "kueue-system"}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def configuration(text):
    """Kueue's ConfigMap with this text below its kind."""
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": f"kind: Configuration\n{text}"},
    }
