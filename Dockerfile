# The base is Debian with Python 3.11, 3.12 or 3.13 and venv. The digest is that of the index, for all platforms;
# `docker buildx imagetools inspect python:3.12-slim` prints the newest.
ARG BASE_IMAGE=python:3.12-slim@sha256:229a2c5bfa27522db7815ea81f9bed70af17ccb9de9fc7ad142b1877b5830d36

# What `build` starts from: the stage of that name, or an image that was made of it before.
ARG DEPENDENCIES=dependencies

FROM ${BASE_IMAGE} AS dependencies
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
# binutils has `strip`, which makes the image 60 MB smaller.
RUN apt-get update && apt-get install -y --no-install-recommends binutils \
    && python3 -m venv /opt/shardsmith && python3 -m venv /opt/sbom
WORKDIR /src
# Dependencies before the source: this layer is reused until a lock changes.
COPY locks/image.txt docker/sbom.lock ./
RUN /opt/shardsmith/bin/pip install --require-hashes --only-binary :all: -r image.txt \
    && /opt/sbom/bin/pip install --require-hashes --only-binary :all: -r sbom.lock

FROM ${DEPENDENCIES} AS build
COPY pyproject.toml setup.py README.md LICENSE ./
COPY app ./app
RUN /opt/shardsmith/bin/pip install --no-deps --no-build-isolation .
COPY docker ./docker
# Trimmed first, so that kernels are compiled by what the image holds.
RUN python3 docker/trim.py /opt/shardsmith \
    && cp docker/entrypoint.py docker/healthcheck.py /opt/shardsmith/bin/ \
    && NUMBA_CACHE_DIR=/opt/shardsmith/kernels python3 -I docker/entrypoint.py \
       /opt/shardsmith/bin/python -c "from shardsmith.codecs import kernels; kernels.compile_all()" \
    && /opt/sbom/bin/cyclonedx-py environment --output-file /opt/shardsmith/sbom.cdx.json /opt/shardsmith/bin/python \
    && python3 docker/assemble.py /opt/shardsmith /image

# From nothing: no shell, package manager or other program of the base.
FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Shardsmith" \
      org.opencontainers.image.description="Tensors in, TFRecord shards out, and back again, over plain HTTP" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# It listens beyond its container, and so does not start without authentication: docs/auth.md.
# It writes to /var/lib/shardsmith and /tmp alone: the root file system may be read-only.
COPY --from=build /image /
# After SIGTERM it goes on taking connections for 5 s, until load balancers have seen that it is unready.
ENV PATH=/opt/shardsmith/bin \
    LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
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
ENTRYPOINT ["/opt/shardsmith/bin/python", "-I", "-S", "/opt/shardsmith/bin/entrypoint.py"]
CMD ["/opt/shardsmith/bin/shardsmith"]
