# Container image with the binary and the CA certificates. On the first start without API keys, the
# gateway creates a key and writes it to /var/lib/throughline/first-key.
FROM rust:1.95.0-slim-trixie AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# Skip the components of rust-toolchain.toml: a build needs no lints or formatter.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package throughline-cli --features aws

FROM debian:trixie-slim
# The user has a fixed id, so that volumes and Kubernetes' security context can refer to it.
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/throughline throughline
COPY --from=build /src/target/dist/throughline /usr/local/bin/throughline
COPY packaging/docker/healthcheck /usr/local/bin/throughline-healthcheck
USER 10001:10001
WORKDIR /var/lib/throughline
ENV THROUGHLINE_STORE=sqlite:///var/lib/throughline/throughline.db \
    XDG_CONFIG_HOME=/etc
VOLUME /var/lib/throughline
EXPOSE 4400
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["throughline-healthcheck"]
ENTRYPOINT ["throughline"]
CMD ["serve", "--listen", "0.0.0.0:4400", "--first-key-file", "/var/lib/throughline/first-key"]
