# A base needs Python 3.11, 3.12 or 3.13 with venv, and a POSIX shell. The digest is that of the index, for all
# platforms; `docker buildx imagetools inspect python:3.12-slim` prints the newest.
ARG BASE_IMAGE=python:3.12-slim@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36

FROM ${BASE_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/shardsmith
WORKDIR /src
# Dependencies before the source: this layer is reused until the lock changes.
COPY requirements-image.lock ./
RUN /opt/shardsmith/bin/pip install --require-hashes --only-binary :all: -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY app ./app
RUN /opt/shardsmith/bin/pip install --no-deps --no-build-isolation .
COPY docker ./docker
# Kernels compiled here start a container in seconds; each takes a copy, since numba wants to write beside.
RUN cp docker/entrypoint.sh docker/healthcheck.py /opt/shardsmith/bin/ \
    && NUMBA_CACHE_DIR=/opt/shardsmith/kernels /opt/shardsmith/bin/entrypoint.sh \
       /opt/shardsmith/bin/python -c "from shardsmith.codecs import kernels; kernels.compile_all()"

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Shardsmith" \
      org.opencontainers.image.description="Tensors in, TFRecord shards out, and back again, over plain HTTP" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /opt/shardsmith /opt/shardsmith
# It listens beyond its container, and so does not start without authentication: docs/auth.md.
# The only folders written to, beside /tmp: the root file system may be read-only.
RUN mkdir -p /var/lib/shardsmith/data /var/lib/shardsmith/spool \
    && chown -R 10001:10001 /var/lib/shardsmith
# After SIGTERM it goes on taking connections for 5 s, until load balancers have seen that it is unready.
ENV PATH=/opt/shardsmith/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/opt/shardsmith/kernels \
    SHARDSMITH_HOST=0.0.0.0 \
    SHARDSMITH_PORT=8000 \
    SHARDSMITH_LOG_FORMAT=json \
    SHARDSMITH_SHUTDOWN_DELAY_S=5 \
    SHARDSMITH_STORAGE_URL=file:///var/lib/shardsmith/data \
    SHARDSMITH_SPOOL_DIR=/var/lib/shardsmith/spool
USER 10001:10001
WORKDIR /var/lib/shardsmith
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["/opt/shardsmith/bin/python", "-I", "/opt/shardsmith/bin/healthcheck.py"]
ENTRYPOINT ["/opt/shardsmith/bin/entrypoint.sh"]
CMD ["/opt/shardsmith/bin/shardsmith"]
