# Throughline as a container: the binary, the authorities that TLS trusts, and nothing else.
FROM rust:1.95.0-slim-trixie AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
# The toolchain of the image has all that a build needs: no lints, no formatter.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package throughline-cli

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/throughline throughline
COPY --from=build /src/target/release/throughline /usr/local/bin/throughline
USER throughline
ENV THROUGHLINE_STORE=sqlite:///var/lib/throughline/throughline.db
VOLUME /var/lib/throughline
EXPOSE 4400
# Other machines are answered once there is a key: run `throughline keys create` in the same volume first.
ENTRYPOINT ["throughline"]
CMD ["serve", "--listen", "0.0.0.0:4400"]
