# Shortcuts for common commands. Nothing requires `just`.

# list the recipes
default:
    @just --list

# run every test
test *ARGS:
    cargo test --locked --workspace {{ ARGS }}

# run all checks that a change must pass
ci *STEPS:
    .ci/run {{ STEPS }}

# run programs that build the library with other features (`.ci/run features` only builds them)
hosts:
    .ci/run hosts

# fuzz every parser of untrusted data with this many nearly valid inputs
fuzz cases='1000000':
    MCPVISOR_FUZZ_CASES={{ cases }} cargo test --locked --release -p mcpvisor-core -p mcpvisor -p mcpvisor-cli --lib --bins fuzz

# format the code
fmt:
    cargo fmt --all

# lint the code; warnings are errors
lint:
    .ci/run lint

# build the documentation; warnings are errors
doc:
    .ci/run doc

# watch a fleet lose servers and recover
demo *ARGS:
    cargo run --locked --release -- demo {{ ARGS }}

# record the demo on a pseudo-terminal as an SVG for the README
record-demo:
    cargo build --locked --release -p mcpvisor-cli --bins --examples
    target/release/examples/record-demo docs/demo.svg

# generate the manual pages from the command line definition
man:
    cargo run --locked -p mcpvisor-cli -- man docs/man

# benchmark against bare rmcp
bench *ARGS:
    cargo run --locked --release -p mcpvisor-tests --bin bench -- {{ ARGS }}

# check licences, bans, sources and advisories (needs cargo-deny and the network)
deny:
    cargo deny --locked check

# check with the oldest supported Rust, if it is installed
msrv:
    .ci/run msrv

# run the library's examples
examples:
    .ci/run examples

# test random histories of the machine against a simple model, at full size
histories *ARGS:
    MCPVISOR_HISTORIES=100000 cargo test --locked --release -p mcpvisor-core --test histories -- --nocapture {{ ARGS }}

# soak test: one fault per second for ten minutes, or MCPVISOR_SOAK_SECONDS
soak:
    MCPVISOR_SOAK_SECONDS=${MCPVISOR_SOAK_SECONDS:-600} .ci/run soak

# Set MCPVISOR_CHAOS_SECONDS for another length, MCPVISOR_CHAOS_SEED to repeat a run.
# chaos test: five minutes of random control requests, crashes and kills
chaos:
    MCPVISOR_CHAOS_SECONDS=${MCPVISOR_CHAOS_SECONDS:-300} cargo test --locked -p mcpvisor-tests --test chaos -- --nocapture

# install third-party servers under target/ and test against them
peers:
    .ci/peers

# measure the reliability figures for docs/figures.md at full size (on an otherwise idle machine)
figures *ARGS:
    MCPVISOR_FULL=1 cargo test --locked --release -p mcpvisor-tests --test figures --test hostile --test http --test secrets -- --nocapture --test-threads=1 {{ ARGS }}

# run a server with selectable faults, for any client: `just badserver --list-faults`
badserver *ARGS:
    cargo run --locked --release -p mcpvisor-testkit --bin mcpvisor-badserver -- {{ ARGS }}

# run the protocol's official conformance suite against our client
conformance *SCENARIOS:
    .ci/conformance {{ SCENARIOS }}
