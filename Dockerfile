# One image for every role: docker run infscale sidecar --engine-url http://127.0.0.1:8000/metrics
# Built by `make image` (docs/image.md). A base needs Python 3.11 or newer with its module venv, and nothing else.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY exporter exporter
COPY sim sim
# pip stays behind in an environment of its own: nothing is installed at run time. A mirror or a certificate of the
# machine that builds comes as a secret, so that it is in no layer; without them pip uses its defaults.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem,target=/run/ca.pem \
    python3 -m venv /pip \
    && python3 -m venv --without-pip /opt/infscale \
    && /pip/bin/pip --python /opt/infscale/bin/python3 install --no-cache-dir --no-compile -c constraints.txt \
        ".[activator,auth]"
# Compiled here, once, by hash: the final root is read-only, and a changed mtime must not make Python compile again.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash /opt/infscale/lib \
    && /opt/infscale/bin/infscale install-hook /hook

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG BASE
LABEL org.opencontainers.image.title="infscale" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.description="Scale LLM inference on queue depth" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY rules /usr/share/infscale/rules
COPY dashboards /usr/share/infscale/dashboards
COPY --from=build /hook /usr/share/infscale/hook
COPY --from=build /opt/infscale /opt/infscale
ENV PATH=/opt/infscale/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes' runAsNonRoot can check it; nonroot in the distroless images.
USER 65532:65532
# Main listener and kubelet listener.
EXPOSE 10047 10048
ENTRYPOINT ["infscale"]
CMD ["--help"]
