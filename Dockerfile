# The image of operator and gateway: two stages, every package pinned by hash, no build tools and no lab in the last one.
# BASE may be any image with Python 3.11 or newer and its venv module; name it with its digest where builds have to be
# the same tomorrow: --build-arg BASE=python:3.11-slim-bookworm@sha256:...
# Packages come from where the build's own pip is told to look: mount a pip.conf at /etc/pip.conf for a mirror.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN python3 -m venv /opt/agentterminal \
    && /opt/agentterminal/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/runtime.txt \
    && python3 -m venv /opt/build \
    && /opt/build/bin/python -m pip install --no-cache-dir --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY crds crds
COPY controller controller
# At last pip and setuptools leave the environment that is taken along.
RUN /opt/build/bin/python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && /opt/agentterminal/bin/python -m pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && /opt/agentterminal/bin/python -m pip uninstall --yes setuptools pip

FROM ${BASE}
# What is built, and from which commit: --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD)
ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="agentterminal-operator" \
      org.opencontainers.image.description="Declares the terminals of AI agents in Fly.io Sprites, and proves their end." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base's own package manager of Python, where it has one: nothing is ever installed in a running container.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/site-packages/pip* \
        /usr/local/lib/python3.*/site-packages/setuptools* /usr/local/lib/python3.*/site-packages/wheel* \
        /usr/local/lib/python3.*/ensurepip /usr/lib/python3*/ensurepip
COPY --from=build /opt/agentterminal /opt/agentterminal
# The root file system is read-only: nothing is compiled into it, and /tmp is a volume.
ENV PATH=/opt/agentterminal/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/opt/agentterminal/bin/agentterminal"]
CMD ["operator"]
