# The operator's image: two stages, everything pinned by hash, no build tools and no lab in the last one.
# BASE may be any image with Python 3.11 or newer and its venv module.
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
RUN /opt/build/bin/python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && /opt/agentterminal/bin/python -m pip install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && /opt/agentterminal/bin/python -m pip uninstall --yes pip

FROM ${BASE}
LABEL org.opencontainers.image.title="agentterminal-operator" \
      org.opencontainers.image.description="Declares the terminals of AI agents in Fly.io Sprites, and proves their end." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/agentterminal /opt/agentterminal
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["/opt/agentterminal/bin/agentterminal"]
CMD ["operator"]
