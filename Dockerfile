# For a CPU:   docker build -t dcp . && docker run --rm -v "$PWD/runs:/work/runs" dcp train --preset demo
# For NVIDIA:  docker build -t dcp-cuda --build-arg EXTRAS='[cuda,video]' . && docker run --rm --gpus all dcp-cuda doctor --gpu
# Neither image was built by us yet: there is no Docker and no GPU where this was written. Please say what happens.
FROM python:3.13-slim
ARG EXTRAS=[video]
# What draws bodies off-screen.
RUN apt-get update && apt-get install -y --no-install-recommends libegl1 libgl1 libosmesa6 && rm -rf /var/lib/apt/lists/*
COPY . /opt/dcp
RUN pip install --no-cache-dir "/opt/dcp${EXTRAS}"
RUN useradd --create-home dcp && mkdir /work && chown dcp /work
USER dcp
WORKDIR /work
ENTRYPOINT ["dcp"]
CMD ["--help"]
