# One image for every role: docker run infscale sidecar --engine-url http://127.0.0.1:8000/metrics
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY exporter exporter
COPY sim sim
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM python:${PYTHON}-slim AS venv
COPY --from=wheel /src/constraints.txt /wheel/*.whl /wheel/
# Compiled here, once, by hash: the final root is read-only, and a changed mtime must not make Python compile again.
# pip goes: nothing is installed at run time.
RUN python -m venv /opt/infscale \
    && /opt/infscale/bin/pip install --no-cache-dir --no-compile -c /wheel/constraints.txt \
        "infscale[auth] @ file://$(echo /wheel/*.whl)" \
    && /opt/infscale/bin/pip uninstall --yes pip \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/infscale/lib

FROM python:${PYTHON}-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="infscale" \
      org.opencontainers.image.description="Scale LLM inference on queue depth" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY rules /usr/share/infscale/rules
COPY dashboards /usr/share/infscale/dashboards
COPY --from=venv /opt/infscale /opt/infscale
ENV PATH=/opt/infscale/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes' runAsNonRoot can check it; nonroot in the distroless images.
USER 65532:65532
# Main listener and kubelet listener.
EXPOSE 10047 10048
ENTRYPOINT ["infscale"]
CMD ["--help"]
