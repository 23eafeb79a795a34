# Homing in a container, on the CPU:    docker build -t homing .
# or with JAX for NVIDIA GPUs:          docker build -t homing:cuda --build-arg EXTRAS=cuda .
ARG PYTHON=3.12
FROM python:${PYTHON}-slim-bookworm

# Drawing films without a display or a GPU; a GPU's driver brings its own EGL.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libegl1 libgl1-mesa-dri libgles2 \
    && rm -rf /var/lib/apt/lists/*

ARG EXTRAS=""
WORKDIR /opt/homing
COPY pyproject.toml MANIFEST.in README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m pip install --no-cache-dir -c constraints.txt ".${EXTRAS:+[${EXTRAS}]}"

# Runs belong to an ordinary user; mount a folder over /work to keep them.
RUN useradd --create-home homing && install --directory --owner=homing /work
USER homing
WORKDIR /work
# For any user: compiled programs are kept beside the runs, in /work/.cache.
ENV HOME=/work
# What builds an image has no GPU.
RUN python -m pip check \
    && env JAX_PLATFORMS=cpu homing doctor \
    && env JAX_PLATFORMS=cpu homing policies

ENTRYPOINT ["homing"]
CMD ["--help"]
