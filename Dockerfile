# One image for everything that is Python here: `tuner db migrate`, `tuner worker`, `tuner submit`.
# torch comes from the package index with its own CUDA libraries; the host needs NVIDIA's driver and container toolkit.
FROM python:3.11.11-slim-bookworm

# gcc: torch.compile builds its kernels' launchers with it
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 tuner && useradd --uid 10001 --gid tuner --create-home tuner \
    && mkdir -p /var/lib/tightfit/data /var/lib/tightfit/cache /etc/tightfit /run/tuner /work \
    && chown -R tuner:tuner /var/lib/tightfit /run/tuner

WORKDIR /opt/tightfit
COPY requirements.lock ./
RUN pip install --no-cache-dir -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY objectives objectives
COPY storage storage
COPY tuner tuner
COPY ui ui
RUN pip install --no-cache-dir --no-deps --no-build-isolation . && rm -rf build

COPY examples/container/start.sh /usr/local/bin/tightfit-start
RUN chmod 0755 /usr/local/bin/tightfit-start
USER tuner
WORKDIR /work
ENTRYPOINT ["tightfit-start"]
CMD ["tuner", "--help"]
