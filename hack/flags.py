"""The flags that a control plane's programs are started with. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hack.pki import Pki

Flags = dict[str, object]

CONTROLLERS: Final = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "resourcequota-controller",
    "serviceaccount-controller",
    "ttl-after-finished-controller",
)
SERVICE_RANGE: Final = "10.0.0.0/24"


def etcd(data: Path, *, client: str, peer: str) -> Flags:
    return {
        "data_dir": data,
        "listen_client_urls": client,
        "advertise_client_urls": client,
        "listen_peer_urls": peer,
        "initial_advertise_peer_urls": peer,
        "initial_cluster": f"default={peer}",
        # The data is thrown away anyway.
        "unsafe_no_fsync": True,
        "log_level": "warn",
    }


def api_server(
    pki: Pki, certificates: Path, *, etcd: str, port: int, gates: Mapping[str, bool]
) -> Flags:
    written = ",".join(f"{name}={str(on).lower()}" for name, on in gates.items())
    return {
        "etcd_servers": etcd,
        "secure_port": port,
        "bind_address": "127.0.0.1",
        "advertise_address": "127.0.0.1",
        "cert_dir": certificates,
        "tls_cert_file": pki.certificate("apiserver"),
        "tls_private_key_file": pki.key("apiserver"),
        "client_ca_file": pki.certificate("ca"),
        "service_account_key_file": pki.public_key("service-accounts"),
        "service_account_signing_key_file": pki.key("service-accounts"),
        "service_account_issuer": "https://kubernetes.default.svc",
        "service_cluster_ip_range": SERVICE_RANGE,
        "authorization_mode": "RBAC",
        "allow_privileged": True,
        "endpoint_reconciler_type": "none",
        # No node controller runs here that would take the not-ready taint away again.
        "disable_admission_plugins": "TaintNodesByCondition",
        # Tests create hundreds of Jobs at once.
        "max_requests_inflight": 1600,
        "max_mutating_requests_inflight": 800,
        **({"feature_gates": written} if written else {}),
    }


def scheduler(kubeconfig: Path) -> Flags:
    return {
        "kubeconfig": kubeconfig,
        "leader_elect": False,
        "kube_api_qps": 1000,
        "kube_api_burst": 2000,
        "secure_port": 0,
    }


def controller_manager(kubeconfig: Path, pki: Pki, *, more: Sequence[str] = ()) -> Flags:
    return {
        **scheduler(kubeconfig),
        "service_account_private_key_file": pki.key("service-accounts"),
        "root_ca_file": pki.certificate("ca"),
        "controllers": ",".join((*CONTROLLERS, *more)),
        "concurrent_job_syncs": 20,
    }


def kwok(kubeconfig: Path, stages: Path) -> Flags:
    return {
        "kubeconfig": kubeconfig,
        "config": stages,
        "manage_all_nodes": True,
        "node_ip": "127.0.0.1",
        "node_lease_duration_seconds": 40,
    }


def spelled(flags: Flags) -> list[str]:
    """Spell `secure_port=0` as `--secure-port=0`, and True as Go's flags read it."""
    return [
        f"--{name.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in flags.items()
    ]
