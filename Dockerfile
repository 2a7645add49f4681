# The image of the webhook's server and of its controller; docs/image.md says how to build it.
#
# The base gives Python and the libraries that it needs, nothing of it runs afterwards but those.
# Any Debian with python3 and its venv module will do. For a build that others can repeat, name the
# base by its digest: --build-arg BASE=python:3.13-slim-trixie@sha256:<digest>
ARG BASE=python:3.13-slim-trixie

FROM ${BASE} AS build
# One date for all files, so that equal contents are equal layers, from one release to the next.
ARG SOURCE_DATE_EPOCH=315532800
# Where pip asks, and whom it trusts, behind a mirror or a proxy; unset in most places.
ARG PIP_INDEX_URL
ARG PIP_CERT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH}
WORKDIR /src

COPY requirements/run.txt requirements/build.txt requirements/
RUN python3 -m venv /build \
 && python3 -m venv --without-pip /opt/kueue-fallback \
 && /build/bin/pip install --no-compile --require-hashes --only-binary :all: -r requirements/build.txt \
 && /build/bin/pip --python /opt/kueue-fallback/bin/python install --no-compile --require-hashes --only-binary :all: -r requirements/run.txt
COPY hack/image_root.py hack/
RUN python3 hack/image_root.py dependencies /opt/kueue-fallback /layers/dependencies \
 && python3 hack/image_root.py python /opt/kueue-fallback /layers/python

COPY pyproject.toml README.md LICENSE ./
COPY certs certs
COPY webhook webhook
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && /build/bin/pip --python /opt/kueue-fallback/bin/python install --no-compile --no-deps --no-index --find-links /wheels kueue-fallback \
 && python3 hack/image_root.py project /opt/kueue-fallback /layers/project /layers/dependencies

# No shell, no package manager, no pip: three layers, from what changes least to what changes most.
FROM scratch
COPY --from=build /layers/python/ /
COPY --from=build /layers/dependencies/ /
COPY --from=build /layers/project/ /
ENV LANG=C.UTF-8 PATH=/opt/kueue-fallback/bin PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kueue-fallback" \
      org.opencontainers.image.description="A mutating admission webhook that sends Jobs to the Kueue queue where they will do best" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# A number, so that runAsNonRoot can be checked; every other number does as well.
USER 65532:65532
EXPOSE 10250 8080
# For engines without probes of their own; Kubernetes never runs it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-I", "-S", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["kueue-fallback"]
CMD ["serve"]
