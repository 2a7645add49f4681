"""The settings of a server process, read once at start. Each has its unit, default and why."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from webhook.model.policy.matching import KindName

_LABEL: Final = r"^[a-zA-Z_][a-zA-Z0-9_]*$"
_BY: Final = "by ($namespace, $pod, $model, $part)"
_IN_USE: Final = f"avg {_BY} (avg_over_time({{}}[16m]))"


class PrometheusQueries(BaseModel):
    """What is asked, in PromQL; $namespace, $pod, $model and $part stand for the labels' names.

    The first is asked every 5 minutes, the others in turn, so that each is every 15; the ranges
    overlap a little. The defaults are for NVIDIA's dcgm-exporter with its default counters.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    memory: str = f"max {_BY} (max_over_time(DCGM_FI_DEV_FB_USED[6m]))"
    """The most memory in use of one device, in MiB, over the last 6 minutes."""

    power: str = _IN_USE.format("DCGM_FI_DEV_POWER_USAGE")
    """Watts of one device, on average over the last 16 minutes. Empty: it is not asked for."""

    compute: str = _IN_USE.format("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
    """Part of the time, from 0 to 1, in which what computes is busy. Empty: likewise."""

    bandwidth: str = _IN_USE.format("DCGM_FI_PROF_DRAM_ACTIVE")
    """Part of the time, from 0 to 1, in which the device's memory is busy. Empty: likewise."""


class PrometheusLabels(BaseModel):
    """What labels of the answers are called."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str = Field(default="namespace", pattern=_LABEL)
    """The pod's namespace; ``exported_namespace`` where honor_labels is off."""

    pod: str = Field(default="pod", pattern=_LABEL)
    """The pod; likewise."""

    model: str = Field(default="modelName", pattern=_LABEL)
    """The device's model. Where no series has it, what its ResourceFlavor says counts."""

    part: str = Field(default="GPU_I_PROFILE", pattern=_LABEL)
    """The slice of the device; where it is not empty, nothing is learned of needs."""


class PrometheusSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://[^@?#\s]+$")
    """Where it is, with what stands before ``/api/v1``; no credentials."""

    ca_file: str = ""
    """File of the authorities, PEM, by which it is verified; empty: the system's."""

    token_file: str = ""
    """File of a bearer token, read for each query; empty: none is sent."""

    queries: PrometheusQueries = PrometheusQueries()
    labels: PrometheusLabels = PrometheusLabels()

    @model_validator(mode="after")
    def _token_needs_tls(self) -> Self:
        """Refuse to send a token over a connection that anybody can read."""
        if self.token_file and not self.url.startswith("https://"):
            raise ValueError("token_file: needs an https url")
        return self


Seconds = Annotated[float, Field(gt=0)]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: str = "0.0.0.0:10250"
    """Address of TLS ``POST /mutate``. Port 10250 is reachable from managed control planes."""

    metrics_listen: str = "0.0.0.0:8080"
    """Address of plain ``/healthz``, ``/readyz``, ``/metrics``."""

    console_listen: str = "127.0.0.1:8081"
    """Address of the console: the Quota API, the latest decisions, a page for people. On loopback
    it is plain and open, for port-forward; elsewhere it speaks TLS with the webhook's certificate,
    and each request needs a bearer token and shows what its owner's rights in Kubernetes show."""

    console_audience: str = ""
    """Audience of these tokens; empty: the API server's own."""

    console_follow_jobs: bool = True
    """Whether the console also shows the decisions of other replicas, from the Jobs on which they
    stand; needs list and watch of Jobs."""

    tls_cert: str = "/tls/tls.crt"
    """File of the certificate chain, PEM."""

    tls_key: str = "/tls/tls.key"
    """File of its private key, PEM."""

    client_ca: str = ""
    """File of the authorities, PEM, that sign the API servers' client certificates; a client
    without one fails the handshake. Read again when it changes. Empty: none is required."""

    client_names: tuple[str, ...] = ()
    """Names of clients: such a certificate must have one of them as its common name, or as a DNS
    name or URI. Empty: every client with a certificate of these authorities may send reviews."""

    path_segments: str = ""
    """File of a list, JSON: the last segments of the paths at which reviews are answered, such as
    ``/mutate/<segment>``; an empty segment is ``/mutate`` alone. A file, because they are secret.
    Empty: ``/mutate`` alone."""

    certificates: Literal["files", "self-managed"] = "files"
    """Where the certificate comes from: the two files above, or an authority of our own that lies
    in a Secret."""

    ca_secret: str = "kueue-fallback-ca"  # noqa: S105 - a name
    """Name of that Secret, in our own namespace."""

    webhook_configuration: str = "kueue-fallback"
    """Name of the MutatingWebhookConfiguration whose ``caBundle`` names the authority, and in which
    the controller leaves namespaces out."""

    service: str = "kueue-fallback"
    """Name of the Service by which the API server calls; the certificate is made out to it."""

    ca_lifetime: Seconds = 365 * 86_400.0
    """Seconds that the authority is valid."""

    leaf_lifetime: Seconds = 86_400.0
    """Seconds that a replica's own certificate is valid; it never leaves the process."""

    ca_settle: Seconds = 60.0
    """Seconds from the publication of a new authority to the first certificate that it signs, so
    that every API server has read it by then."""

    kubeconfig: str = ""
    """File of a kubeconfig; empty: the pod's own ServiceAccount."""

    namespace: str = "kueue-fallback"
    """Our own namespace, never matched by a policy without ``namespaceSelector``."""

    kueue_namespace: str = "kueue-system"
    """Where Kueue runs: its Deployment and its configuration."""

    kueue_version: str = Field(default="", pattern=r"^(v?\d+\.\d+.*)?$")
    """Kueue's version, such as ``"0.19.2"``; empty: the tag of the image in its Deployment. For a
    Kueue that was built under other tags, or that runs elsewhere."""

    untested_kueue: Literal["observe", "enforce"] = "observe"
    """What policies that enforce do while Kueue's version, gates or configuration are not among
    those that are tested: what would be decided there rests on guesses."""

    kinds: tuple[KindName, ...] = ("Job",)
    """Kinds of Jobs that are switched on: those that reviews are sent of. Others are not followed,
    so that no right to them is needed."""

    reasons_url: str = Field(default="", pattern=r"^(https?://[^\s#]+)?$", max_length=80)
    """Where users find a copy of ``docs/reasons.md``: warnings that have a reason then end with a
    link to it, where that fits into 120 characters. Empty: none."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """What the money of Tariffs is in. It is printed, and never converted."""

    holds: bool = False
    """Whether controllers run that release held Jobs; without, no Job is held."""

    omit_unmatched: bool = False
    """Whether the leading controller leaves namespaces in which no policy can match out of the
    webhook configuration, so that their new Jobs are not sent."""

    watch_nodes: bool = False
    """Whether to watch Nodes: labels tell devices, and what they offer the room in domains."""

    series: tuple[str, ...] = ()
    """ConfigMaps with prices or carbon intensities by the hour, which Tariffs may name: of our
    namespace, or with theirs before it (``kube-system/carbon-intensity``)."""

    pod_groups: bool = False
    """Whether groups of pods are decided. Their reviews then come to a path of their own, at which
    a pod is refused while it is not certain what the others of its group follow."""

    pod_group_wait: Seconds = 1.0
    """Longest wait for the decision of a group of pods, seconds: half of the time that the API
    server waits for an answer."""

    watch_workers: bool = False
    """Whether to watch the queues of MultiKueue's worker clusters, too: of each for which there
    is a Secret ``kueue-fallback-worker-<MultiKueueCluster>`` in our namespace."""

    dispatcher: bool = False
    """Whether controllers nominate the worker clusters of Workloads, as MultiKueue's dispatcher
    ``kueue-fallback.dev/dispatcher``; Kueue's configuration must name it, or nothing is done."""

    prometheus: PrometheusSettings | None = None
    """The Prometheus that the leading controller asks what Jobs use of their devices, every 5
    minutes; None: nobody is asked. It is the only address besides API servers that is called."""

    journal_days: int = Field(default=1, ge=1, le=7)
    """Days for which the leading controller keeps Jobs that are over, with 8 hours more, in
    ConfigMaps of our namespace; savings are counted of the last day. A week is for
    ``report --slices``, and is up to seven times as much to store."""

    max_state_age: Seconds = 15.0
    """Seconds without a sign of life from a watch after which Jobs are left alone; a watch is
    resumed every 6 to 9 s, so a quiet cluster stays below."""

    min_gain_probability: float = Field(default=0.8, ge=0.5, lt=1)
    """Probability with which a Job must be done sooner where it is sent or moved, than in the
    option that its policy prefers; by the ranges of both forecasts."""

    placement_ttl: Seconds = 30.0
    """Seconds after which a placement is forgotten whose Workload was not created, such as that of
    a Job that another webhook refused after us. While the watches are live it takes 5 s, or four
    times as long as Workloads took lately, if that is more; never longer than this."""

    keep_alive: int = Field(default=120, gt=90)
    """Seconds until an idle connection is closed; more than the API server's 90, so that it is
    always the API server that closes it."""

    drain_seconds: float = Field(default=15.0, ge=0)
    """Seconds between SIGTERM and the end, in which reviews are still answered: the time that the
    API server needs to see that this replica has left the Service."""

    @model_validator(mode="after")
    def _names_need_an_authority(self) -> Self:
        """Refuse client names without a client_ca: no certificate would be required."""
        if self.client_names and not self.client_ca:
            raise ValueError("client_names: need a client_ca that vouches for them")
        return self

    @model_validator(mode="after")
    def _lifetimes_leave_time(self) -> Self:
        """Refuse lifetimes under which a certificate could run out before it may be renewed."""
        if self.leaf_lifetime < 6 * self.ca_settle:
            raise ValueError("leaf_lifetime: must be at least 6 times ca_settle")
        if self.ca_lifetime < 3 * self.leaf_lifetime:
            raise ValueError("ca_lifetime: must be at least 3 times leaf_lifetime")
        return self
