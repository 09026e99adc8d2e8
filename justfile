# The menu of habits. Each line is a command you could type yourself.

# List the menu.
default:
    @just --list --unsorted

# Everything that must pass before a commit.
test:
    scripts/test

# The same tests at the full counts, the fuzzers and the benchmarks.
soak:
    scripts/soak

# Measure the codecs.
bench *arguments:
    cargo bench -p throughline-codec {{arguments}}

# Rewrite the sources in the house format.
fmt:
    cargo fmt --all

# Lints, and the dependency rules where cargo-deny is installed.
lint:
    cargo clippy --workspace --all-targets -- -D warnings
    @if command -v cargo-deny >/dev/null; then cargo deny check; else echo "cargo-deny is not installed; deny.toml was not checked"; fi

# Build the documentation and open it.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --open

# Show a provider's request as Throughline understands it: `just show request.json`.
show *arguments:
    cargo run --release -- show {{arguments}}
