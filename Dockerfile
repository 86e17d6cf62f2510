# `opendp-sim serve` for analysts: no shell is needed, nothing is written but what the folder holds.
#   docker build -t opendp-sim .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges -p 127.0.0.1:8080:8080 \
#     -v "$PWD/served:/srv/served" opendp-sim --name data.example.org
# The folder belongs to the user below: chown -R 10001:10001 served
FROM python:3.12-slim-bookworm AS made
WORKDIR /made
COPY . .
# Compiled by content, not by time: copies have other times, and a read-only root would compile at every start.
RUN python -m venv /opt/opendp_sim \
 && /opt/opendp_sim/bin/pip install --no-cache-dir --no-compile ".[studio,parquet]" \
 && /opt/opendp_sim/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/opendp_sim/lib

FROM python:3.12-slim-bookworm
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin serve
COPY --from=made /opt/opendp_sim /opt/opendp_sim
ENV PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 10001:10001
WORKDIR /srv/served
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["/opt/opendp_sim/bin/python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health/ready', timeout=2)"]
ENTRYPOINT ["/opt/opendp_sim/bin/opendp-sim", "serve", "folder", "/srv/served", "--host", "0.0.0.0", "--port", "8080"]
