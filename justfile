# Short names for the commands that people type; nothing needs `just` installed.

# list the recipes
default:
    @just --list

# run every test
test *ARGS:
    cargo test --locked --workspace {{ ARGS }}

# everything that must hold before a change goes in
ci *STEPS:
    .ci/run {{ STEPS }}

# build and run the library in programs with features of their own (`.ci/run features` only builds them)
hosts:
    .ci/run hosts

# feed every parser of outside data so many inputs that are nearly right
fuzz cases='1000000':
    MCPVISOR_FUZZ_CASES={{ cases }} cargo test --locked --release -p mcpvisor-core -p mcpvisor -p mcpvisor-cli --lib --bins fuzz

# format the code
fmt:
    cargo fmt --all

# warnings are errors
lint:
    .ci/run lint

# build the documentation; warnings are errors
doc:
    .ci/run doc

# watch a fleet lose servers and recover
demo *ARGS:
    cargo run --locked --release -- demo {{ ARGS }}

# play the demo on a terminal of its own, and draw it for the README
record-demo:
    cargo build --locked --release -p mcpvisor-cli --bins --examples
    target/release/examples/record-demo docs/demo.svg

# the manual pages, from the command line itself
man:
    cargo run --locked -p mcpvisor-cli -- man docs/man

# compare with bare rmcp
bench *ARGS:
    cargo run --locked --release -p mcpvisor-tests --bin bench -- {{ ARGS }}

# licences, bans, sources and advisories (needs cargo-deny and the network)
deny:
    cargo deny --locked check

# check with the oldest supported Rust, where it is installed
msrv:
    .ci/run msrv

# run the examples of the library
examples:
    .ci/run examples

# random histories of the machine against a plain model, at full size
histories *ARGS:
    MCPVISOR_HISTORIES=100000 cargo test --locked --release -p mcpvisor-core --test histories -- --nocapture {{ ARGS }}

# ten minutes of one fault a second, or MCPVISOR_SOAK_SECONDS
soak:
    MCPVISOR_SOAK_SECONDS=${MCPVISOR_SOAK_SECONDS:-600} .ci/run soak

# five minutes of random control requests, crashes and kills, or MCPVISOR_CHAOS_SECONDS; MCPVISOR_CHAOS_SEED repeats a run
chaos:
    MCPVISOR_CHAOS_SECONDS=${MCPVISOR_CHAOS_SECONDS:-300} cargo test --locked -p mcpvisor-tests --test chaos -- --nocapture

# install servers that others wrote under target/, and hold the promises with them
peers:
    .ci/peers

# the figures of reliability at full size, for docs/figures.md (on a machine that does nothing else)
figures *ARGS:
    MCPVISOR_FULL=1 cargo test --locked --release -p mcpvisor-tests --test figures --test hostile --test http --test secrets -- --nocapture --test-threads=1 {{ ARGS }}

# a server that misbehaves as it is told, for any client: `just badserver --list-faults`
badserver *ARGS:
    cargo run --locked --release -p mcpvisor-testkit --bin mcpvisor-badserver -- {{ ARGS }}

# the protocol's own conformance suite against our client
conformance *SCENARIOS:
    .ci/conformance {{ SCENARIOS }}
