# The program and the Python package on a slim base:
#   docker build -t ulpscope .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" ulpscope precision search model.onnx --fp16 --load-inputs samples.npz
# Other bases: debian:12-slim, ubuntu:24.04, or what has glibc 2.34 or later and either Python 3.11 or later or apt.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
COPY . .
RUN scripts/setup.sh && scripts/wheel.sh --python "$(readlink -f .venv/bin/python3)"

FROM ${BASE}
RUN command -v python3 || (apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*)
RUN --mount=type=bind,from=build,source=/source/dist,target=/dist \
    python3 -m venv /opt/ulpscope && /opt/ulpscope/bin/pip install --no-cache-dir "$(ls /dist/*.whl)[onnx,scripts]"
ENV PATH=/opt/ulpscope/bin:$PATH
WORKDIR /work
ENTRYPOINT ["ulpscope"]
CMD ["--help"]
