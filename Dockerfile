# The image of the webhook's server and of its controller; docs/install.md says how to build it.
#
# For a build that others can repeat, name the base by its digest:
# --build-arg BASE=python:3.13-slim@sha256:<digest>
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
# Where pip asks, behind a mirror; unset in most places.
ARG PIP_INDEX_URL
ENV PATH=/opt/kueue-fallback/bin:${PATH} PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python3 -m venv /opt/kueue-fallback
COPY requirements/run.txt requirements/build.txt requirements/
RUN pip install --no-compile --require-hashes --only-binary :all: -r requirements/build.txt -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY certs certs
COPY webhook webhook
# Without what only the build needs, and the Kubernetes client's asynchronous twin: a third of all.
# Byte code that knows its source by no date is good whatever date a builder gives to files.
RUN pip install --no-compile --no-deps --no-index --no-build-isolation . \
 && pip uninstall --yes setuptools pip \
 && rm -rf /opt/kueue-fallback/lib/python3*/site-packages/kubernetes/aio \
 && python -m compileall -q --invalidation-mode unchecked-hash /opt/kueue-fallback

FROM ${BASE}
# The base brings pip, and its library without byte code, which no read-only root would keep.
RUN lib="$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
 && rm -rf "$lib"/ensurepip "$lib"/site-packages/pip* /usr/local/bin/pip* \
 && python3 -m compileall -q --invalidation-mode unchecked-hash "$lib"
COPY --from=build /opt/kueue-fallback /opt/kueue-fallback
ENV LANG=C.UTF-8 PATH=/opt/kueue-fallback/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.title="kueue-fallback" \
      org.opencontainers.image.description="A mutating admission webhook that sends Jobs to the Kueue queue where they will do best" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number, so that runAsNonRoot can be checked; every other number does as well.
USER 65532:65532
EXPOSE 10250 8080
# For engines without probes of their own; Kubernetes never runs it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
  CMD ["python", "-I", "-S", "-c", "import http.client, sys; c = http.client.HTTPConnection('127.0.0.1', 8080, timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["kueue-fallback"]
CMD ["serve"]
