# The hub over HTTP, with uv and Node for servers that start with uvx and npx.
#   docker build -t mcp-hub .
#   docker run -p 127.0.0.1:8765:8765 -v ./servers.yaml:/etc/mcp-hub/servers.yaml:ro -e HUB_TOKEN mcp-hub
# The file needs hub.tokens or hub.http.oauth: in a container the hub listens on every address.

FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /opt/mcp-hub
# what the hub needs changes seldom, its sources often
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY licenses licenses
COPY docs/specification/vectors docs/specification/vectors
RUN mkdir mcp_hub && touch mcp_hub/__init__.py \
    && /opt/mcp-hub/bin/pip install --no-cache-dir '.[uvx,otel,redis]'
COPY mcp_hub mcp_hub
RUN /opt/mcp-hub/bin/pip install --no-cache-dir --no-deps --force-reinstall .

FROM node:24-slim AS node

FROM python:3.13-slim
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
COPY --from=build /opt/mcp-hub /opt/mcp-hub
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/mcp-hub mcp-hub \
    && install -d -o mcp-hub -g mcp-hub -m 700 /var/lib/mcp-hub/state
# mounted files belong to users that the container does not know, hence MCP_HUB_TRUST_CONFIG
ENV PATH=/opt/mcp-hub/bin:$PATH \
    HOME=/var/lib/mcp-hub \
    MCP_HUB_CONFIG=/etc/mcp-hub/servers.yaml \
    MCP_HUB_STATE_DIR=/var/lib/mcp-hub/state \
    MCP_HUB_TRUST_CONFIG=1
USER 10001
WORKDIR /var/lib/mcp-hub
VOLUME /var/lib/mcp-hub
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["python", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/healthz', timeout=4)"]
CMD ["mcp-hub", "serve", "--http", "--host", "0.0.0.0", "--port", "8765"]
