# Container image with the binary and the CA certificates.
FROM rust:1.95.0-slim-trixie AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# Skip the components of rust-toolchain.toml: a build needs no lints or formatter.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package throughline-cli

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/throughline throughline
COPY --from=build /src/target/dist/throughline /usr/local/bin/throughline
USER throughline
ENV THROUGHLINE_STORE=sqlite:///var/lib/throughline/throughline.db
VOLUME /var/lib/throughline
EXPOSE 4400
# Other machines have access only if there is an API key: run `throughline keys create` on this
# volume first.
ENTRYPOINT ["throughline"]
CMD ["serve", "--listen", "0.0.0.0:4400"]
