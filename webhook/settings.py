"""The settings of a server process, read once at start. Each has its unit, default and why."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from webhook.model.policy.spec import KindName

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
    """Part of the time, from 0 to 1, in which the computing units are busy. Empty: not asked."""

    bandwidth: str = _IN_USE.format("DCGM_FI_PROF_DRAM_ACTIVE")
    """Part of the time, from 0 to 1, in which the device's memory is busy. Empty: not asked."""


class PrometheusLabels(BaseModel):
    """The names of labels in the answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str = Field(default="namespace", pattern=_LABEL)
    """The pod's namespace; ``exported_namespace`` if honor_labels is off."""

    pod: str = Field(default="pod", pattern=_LABEL)
    """The pod's name; ``exported_pod`` if honor_labels is off."""

    model: str = Field(default="modelName", pattern=_LABEL)
    """The device's model. If no series has it, the ResourceFlavor's model counts."""

    part: str = Field(default="GPU_I_PROFILE", pattern=_LABEL)
    """The slice of the device. If it is not empty, no memory need is learned."""


class PrometheusSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://[^@?#\s]+$")
    """URL, up to ``/api/v1``, without credentials."""

    ca_file: str = ""
    """PEM file of the authorities that verify it. Empty: the system's."""

    token_file: str = ""
    """File of a bearer token, read for each query. Empty: no token is sent."""

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
    it is plain HTTP and open, for port-forward. Elsewhere it speaks TLS with the webhook's
    certificate; each request needs a bearer token, and shows only what the token's owner may see
    in Kubernetes."""

    console_audience: str = ""
    """Audience of these tokens. Empty: the API server's own."""

    console_follow_jobs: bool = True
    """Whether the console also shows moves and the decisions of other replicas, read from the Jobs.
    Needs list and watch of Jobs."""

    tls_cert: str = "/tls/tls.crt"
    """File of the certificate chain, PEM."""

    tls_key: str = "/tls/tls.key"
    """File of its private key, PEM."""

    client_ca: str = ""
    """PEM file of the authorities that sign the API servers' client certificates. A client without
    such a certificate fails the handshake. Read again when it changes. Empty: no certificate is
    required."""

    client_names: tuple[str, ...] = ()
    """Names of clients. A client certificate must have one of them as its common name, as a DNS
    name or as a URI. Empty: every client with a certificate of these authorities may ask."""

    path_segments: str = ""
    """JSON file with a list of the last segments of the paths that are answered, such as
    ``/mutate/<segment>``. An empty segment is ``/mutate`` alone. They are in a file because they
    are secret. Empty: ``/mutate`` alone."""

    certificates: Literal["files", "self-managed"] = "files"
    """Where the certificate comes from: the two files above, or our own authority in a Secret."""

    ca_secret: str = "kueue-fallback-ca"  # noqa: S105 - a name
    """Name of that Secret, in our own namespace."""

    webhook_configuration: str = "kueue-fallback"
    """Name of the MutatingWebhookConfiguration whose ``caBundle`` names the authority."""

    service: str = "kueue-fallback"
    """Name of the Service that the API server calls; the certificate is for this name."""

    ca_lifetime: Seconds = 365 * 86_400.0
    """Seconds that the authority is valid."""

    leaf_lifetime: Seconds = 86_400.0
    """Seconds that a replica's own certificate is valid; it never leaves the process."""

    ca_settle: Seconds = 60.0
    """Seconds from the publication of a new authority to the first certificate that it signs, so
    that every API server has read it by then."""

    kubeconfig: str = ""
    """Path of a kubeconfig. Empty: the pod's own ServiceAccount."""

    namespace: str = "kueue-fallback"
    """Our own namespace. A policy without ``namespaceSelector`` never matches it."""

    kueue_namespace: str = "kueue-system"
    """Kueue's namespace, with its Deployment and its configuration."""

    kueue_version: str = Field(default="", pattern=r"^(v?\d+\.\d+.*)?$")
    """Kueue's version, such as ``"0.19.2"``, if its image has other tags or it runs elsewhere.
    Empty: the tag of the image in its Deployment."""

    untested_kueue: Literal["observe", "enforce"] = "observe"
    """What policies in mode Enforce do while Kueue's version, gates or configuration are untested.
    The default is observe, because decisions would then be guesses."""

    kinds: tuple[KindName, ...] = ("Job",)
    """Kinds of Jobs that are switched on, whose reviews are sent. Other kinds are not followed, so
    no right to them is needed."""

    reasons_url: str = Field(default="", pattern=r"^(https?://[^\s#]+)?$", max_length=80)
    """URL of a copy of ``docs/reasons.md``. Warnings with a reason then end with a link to it, if
    the link fits into 120 characters. Empty: no link."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Currency of the money in Tariffs. It is printed, and never converted."""

    holds: bool = False
    """Whether controllers run, which release held Jobs. Otherwise no Job is held."""

    watch_nodes: bool = False
    """Whether to watch Nodes: their labels name devices; their capacity shows a domain's room."""

    team_policies: bool = False
    """Whether teams' policies for their own namespaces, TeamFallbackPolicies, count."""

    series: tuple[str, ...] = ()
    """ConfigMaps that Tariffs may name, with prices or carbon intensities by the hour. They are in
    our namespace, or name their own (``kube-system/carbon-intensity``)."""

    watch_workers: bool = False
    """Whether to also watch the queues of MultiKueue's worker clusters. Each needs a Secret
    ``kueue-fallback-worker-<MultiKueueCluster>`` in our namespace."""

    dispatcher: bool = False
    """Whether controllers nominate the worker clusters of Workloads, as MultiKueue's dispatcher
    ``kueue-fallback.dev/dispatcher``. Has no effect unless Kueue's configuration names it."""

    dispatcher_timeout: float = Field(default=120.0, ge=30)
    """Seconds without a leading controller after which the servers nominate all clusters for what
    waits, until one leads. It is more than it takes until one controller has taken over from
    another (14 s) and servers have seen it lead (10 s)."""

    autoscale: bool = False
    """Whether the leading controller keeps HorizontalPodAutoscalers for services whose policy says
    ``autoscale``. Needs the right to make, change and delete them in all namespaces."""

    prometheus: PrometheusSettings | None = None
    """The Prometheus that the leading controller asks every 5 minutes how Jobs use their devices.
    None: no Prometheus is asked. Besides API servers, this is the only address that is called."""

    fragmentation_minutes: int = Field(default=0, ge=0, le=1440)
    """Minutes after which the leading controller looks again which slices of devices wait, and
    whose end would free them. Needs list of Nodes and Pods. 0: it does not."""

    journal_days: int = Field(default=1, ge=1, le=7)
    """Days for which the leading controller keeps finished Jobs, plus 8 hours, in ConfigMaps of our
    namespace. Savings count only the last day. A week is for ``report --slices``, and takes up to
    seven times as much space."""

    max_state_age: Seconds = 15.0
    """Seconds without a sign of life from a watch after which Jobs are left alone. A watch is
    resumed every 6 to 9 s, so a quiet cluster stays below this."""

    min_gain_probability: float = Field(default=0.8, ge=0.5, lt=1)
    """Least probability that a Job is done sooner where it is sent or moved than in the option
    that its policy prefers. It comes from the ranges of both forecasts."""

    placement_ttl: Seconds = 30.0
    """Seconds after which a placement without a Workload is forgotten, for example because another
    webhook refused the Job after us. While the watches are live it takes 5 s, or four times as long
    as recent Workloads took, if that is more; but never longer than this."""

    keep_alive: int = Field(default=120, gt=90)
    """Seconds until an idle connection is closed. This is more than the API server's 90, so that
    the API server always closes it first."""

    drain_seconds: float = Field(default=15.0, ge=0)
    """Seconds between SIGTERM and the end, in which reviews are still answered. The API server
    needs this time to notice that this replica has left the Service."""

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
