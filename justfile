# Shortcuts for common commands.

# List the recipes.
default:
    @just --list --unsorted

# Run all checks that must pass before a commit.
test:
    scripts/test

# Run the tests at the full counts, the fuzzers and the benchmarks.
soak:
    scripts/soak

# Run the codec benchmarks.
bench *arguments:
    cargo bench -p throughline-codec {{arguments}}

# Format the sources.
fmt:
    cargo fmt --all

# Run the lints, and check the dependencies if cargo-deny is installed.
lint:
    cargo clippy --workspace --all-targets -- -D warnings
    @if command -v cargo-deny >/dev/null; then cargo deny check; else echo "cargo-deny is not installed; deny.toml was not checked"; fi

# Build the documentation and open it.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --open

# Show a provider's request as Throughline understands it: `just show request.json`.
show *arguments:
    cargo run --release -- show {{arguments}}
