//! Writing a config and reading it back, with its variables, gives the same fleet.

use std::collections::HashMap;
use std::time::Duration;

use mcpvisor_core::settings::ConnectionScope;
use mcpvisor_core::{GovernorSettings, ServerSettings};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use rmcp::model::ProtocolVersion;

use super::to_json::{Arguments, VariableNames};
use crate::api::transport::Transport;
use crate::auth::{AuthConfig, mcpvisor_auth};
use crate::config::Config;
use crate::config::{MAX_DURATION, ResultCheck, ServerConfig};
use crate::fuzz::budget;
use crate::secret::Secret;
use crate::server::active_config::ActiveConfig;

/// Part of every secret value, and of nothing else.
const CANARY: &str = "c4n4ry";

fn secret() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 /=+:@?{}$-]{0,8}".prop_map(|text| format!("{CANARY}{text}").replace("${", "$"))
}

/// Texts without variable syntax.
fn plain() -> impl Strategy<Value = String> {
    "[a-z0-9/ äß._-]{1,12}".prop_map(|text| format!("x{text}"))
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..100_000_u64).prop_map(Duration::from_millis),
        (1..100_000_u64).prop_map(Duration::from_secs),
        (1..1_000_000_000_u64).prop_map(Duration::from_nanos),
        (1..=MAX_DURATION.as_nanos() as u64).prop_map(Duration::from_nanos),
        Just(MAX_DURATION),
    ]
}

/// Variables that a server reads itself. The generated variable for a secret of a server `a` may
/// have the same name.
fn own_variable() -> impl Strategy<Value = String> {
    "[ABC]_[AB]|[A-Z]{1,4}"
}

fn transport() -> impl Strategy<Value = Transport> {
    let names = || vec(("[AB]|[A-Z_]{1,4}", secret()), 0..3);
    let named = || vec(secret(), 0..2);
    let stdio = (
        plain(),
        vec(plain(), 0..3),
        names(),
        option::of(plain()),
        named(),
        vec(own_variable(), 0..3),
    );
    let stdio = stdio.prop_map(|(program, args, env, cwd, secrets, inherited)| {
        let mut command = Transport::stdio(program).args(args);
        for (name, value) in env {
            command = command.env(name, value);
        }
        for secret in secrets {
            command = command.arg(format!("--key={secret}!")).secret(secret);
        }
        for variable in inherited {
            command = command.inherit_env(variable);
        }
        match cwd {
            Some(cwd) => command.cwd(cwd).inherit_env("LOCAL_KEY").into(),
            None => command.into(),
        }
    });
    let address = (
        any::<[bool; 2]>(),
        option::of(secret()),
        option::of(secret()),
        option::of(plain()),
    );
    let http = (
        address,
        names(),
        option::of(own_variable()),
        option::of(plain()),
        auth(),
    );
    let http = http.prop_map(|(address, headers, bearer, certificate, auth)| {
        let ([tls, sse], user, query, socket) = address;
        let user = user.map(|user| format!("{}@", user.replace(['/', '?', ' '], "_")));
        let query = query.map(|query| format!("?{}", query.replace(' ', "_")));
        let (user, query) = (user.unwrap_or_default(), query.unwrap_or_default());
        let scheme = if tls { "https" } else { "http" };
        let url = format!("{scheme}://{user}example.com/mcp{query}");
        let mut endpoint = if sse {
            Transport::sse(url)
        } else {
            Transport::http(url)
        };
        if let Some(path) = socket {
            endpoint = endpoint.unix_socket(format!("/{path}"));
        }
        for (name, value) in headers {
            endpoint = endpoint.header(name, value);
        }
        if let Some(bearer) = bearer {
            endpoint = endpoint.bearer_token_env(bearer);
        }
        let endpoint = endpoint.auth(auth);
        match certificate {
            Some(file) => endpoint
                .root_certificate(&file)
                .client_certificate(file)
                .into(),
            None => endpoint.into(),
        }
    });
    prop_oneof![stdio, http]
}

fn auth() -> impl Strategy<Value = AuthConfig> {
    let texts = vec(option::of(plain()), 3);
    let rest = (
        option::of(own_variable()),
        option::of(vec("[a-z:]{1,4}", 0..3)),
        option::of(1..=u16::MAX),
        option::of((vec(plain(), 1..4), duration())),
    );
    (texts, option::of(secret()), rest).prop_map(|(texts, secret, rest)| {
        let (variable, scopes, port, helper) = rest;
        let mut auth = AuthConfig::default();
        auth.account.clone_from(&texts[0]);
        auth.client_id.clone_from(&texts[1]);
        auth.private_key_file = texts[2].clone().map(Into::into);
        auth.client_secret = secret.map(mcpvisor_auth::Secret::new);
        auth.client_secret_env = variable;
        auth.scopes = scopes;
        auth.callback_port = port;
        (auth.headers_helper, auth.headers_helper_ttl) = helper.unzip();
        auth
    })
}

fn connects() -> impl Strategy<Value = GovernorSettings> {
    let counts = [1..100_usize, 1..100, 1..100];
    (counts, duration(), duration(), 0..=100_u32).prop_map(|(counts, hold, window, share)| {
        let mut connects = GovernorSettings::default();
        connects.max_connects = counts[0];
        connects.max_stdio = counts[1];
        connects.burst_floor = counts[2];
        connects.hold = hold;
        connects.burst_window = window;
        connects.burst_share = f64::from(share) / 100.0;
        connects
    })
}

fn server() -> impl Strategy<Value = ServerConfig> {
    let flags = any::<[bool; 10]>();
    let tools = (vec("[a-z*?]{1,4}", 0..3), vec("[a-z*?]{1,4}", 0..3));
    let times = vec(duration(), 4);
    let version = option::of(select(ProtocolVersion::KNOWN_VERSIONS));
    let name = "[a-c][a-c -]{0,2}";
    let all = (
        name,
        transport(),
        flags,
        tools,
        times,
        version,
        1..1_000_u32,
    );
    all.prop_map(|(name, transport, flags, tools, times, version, count)| {
        let mut server = ServerConfig::new(name, transport).unwrap();
        server.enabled = flags[0];
        server.required = flags[1];
        server.pin = flags[2];
        server.check_arguments = flags[3];
        server.check_results = match count % 3 {
            0 => ResultCheck::Off,
            1 => ResultCheck::Warn,
            _ => ResultCheck::Fail,
        };
        server.settings.retry.trusted = flags[4];
        server.settings.budget.wake_on_call = flags[5];
        (server.tools.allow, server.tools.deny) = tools;
        server.settings.rest.lazy = flags[7];
        server.settings.rest.sleep_after = flags[8].then_some(times[1]);
        if flags[6] {
            server.settings.connections.scope = ConnectionScope::Client;
            server.settings.connections.max_connections = count as usize;
        } else {
            server.settings.connections.instances = 1 + count as usize % 64;
        }
        server.settings.connections.affinity = flags[5];
        server.settings.listing.before_calls = flags[9];
        server.settings.timeouts.call = times[1];
        server.settings.close.drain = times[2];
        server.settings.budget.within = times[3];
        server.settings.budget.attempts = count;
        server.settings.admission.waiting = count as usize;
        let messages = &mut server.settings.messages;
        messages.max_bytes += 1_000 * count as usize;
        messages.max_depth -= count as usize % 100;
        messages.max_values += count as usize;
        messages.stderr_bytes += count as usize;
        server.settings.backoff.jitter = f64::from(count) / 1_000.0;
        server.protocol = version;
        server.prefer_older_protocol = flags[8] != flags[9];
        server
    })
}

proptest! {
    #![proptest_config(budget(200))]

    #[test]
    fn a_fleet_that_is_written_down_is_read_back(
        servers in vec(server(), 0..4),
        connects in option::of(connects()),
        hidden: bool,
    ) {
        let mut config = Config::new().state_dir("/state");
        config.connects = connects;
        for server in servers {
            if config.servers.iter().all(|known| known.name != server.name) {
                config.servers.push(server);
            }
        }
        let arguments = if hidden { Arguments::Hidden } else { Arguments::Shown };
        let mut names = VariableNames::default();
        let written = config.written(arguments, &mut names).to_string();
        prop_assert!(!written.contains(CANARY), "{written}");

        let values: HashMap<String, Secret<String>> = names.values.into_iter().collect();
        let lookup = |name: &str| values.get(name).map(|value| value.expose().clone());
        let again = Config::from_json(&written, lookup)
            .map_err(|error| TestCaseError::fail(format!("{error}: {written}")))?;
        prop_assert!(again.problems.iter().all(|p| is_expected(&p.message)), "{:?}", again.problems);
        prop_assert_eq!(&again.state_dir, &config.state_dir);
        prop_assert_eq!(&again.connects, &config.connects);
        for name in config.servers.iter().flat_map(own_variables) {
            prop_assert!(!values.contains_key(&name), "{name} has two meanings: {written}");
        }
        // JSON objects are unordered.
        config.servers.sort_by(|one, other| one.name.cmp(&other.name));
        let mut read = again.servers;
        read.sort_by(|one, other| one.name.cmp(&other.name));
        prop_assert_eq!(read.len(), config.servers.len());
        for (read, server) in read.iter().zip(&config.servers) {
            prop_assert_eq!(read.name.as_str(), server.name.as_str());
            prop_assert!(server.validate().is_ok());
            prop_assert_eq!(obeyed(read), obeyed(server));
            prop_assert_eq!(&read.tools, &server.tools);
            prop_assert_eq!(read.enabled, server.enabled);
            prop_assert_eq!(unmarked(read), unmarked(server));
        }
    }
}

/// Warnings about generated values.
fn is_expected(message: &str) -> bool {
    ["looks like", "has a credential already", "behind a socket"]
        .iter()
        .any(|part| message.contains(part))
}

/// The effective settings in the runtime.
fn obeyed(server: &ServerConfig) -> ServerSettings {
    ActiveConfig::new(server.clone(), None).machine_settings()
}

/// The variables that the runtime reads for a server.
fn own_variables(server: &ServerConfig) -> Vec<String> {
    use crate::api::transport::TransportKind;
    match &server.transport.0 {
        TransportKind::Stdio(command) => command.parts().inherit,
        TransportKind::Http(endpoint) => {
            let bearer = endpoint.parts().bearer_env;
            let read = bearer.into_iter();
            let read = read.chain(endpoint.auth.variables());
            read.map(str::to_owned).collect()
        }
        TransportKind::Stream(_) | TransportKind::Channel { .. } => Vec::new(),
    }
}

#[test]
fn a_variable_that_stands_for_a_secret_means_nothing_else() {
    let github = Transport::http("https://example.com/mcp")
        .header("Token", "a")
        .bearer_token_env("GITHUB_TOKEN");
    let files = Transport::stdio("x")
        .env("TOKEN", "b")
        .inherit_env("FILES_TOKEN");
    let http = Transport::stdio("x").env("PROXY", "c");
    let mut config = Config::new();
    let servers: [(&str, Transport); 3] = [
        ("files", files.into()),
        ("github", github.into()),
        ("http", http.into()),
    ];
    for (name, transport) in servers {
        config
            .servers
            .push(ServerConfig::new(name, transport).unwrap());
    }
    let written = config.to_json(Arguments::Shown);
    let servers = &written["mcpServers"];
    assert_eq!(servers["github"]["headers"]["Token"], "${GITHUB_TOKEN_2}");
    assert_eq!(servers["files"]["env"]["TOKEN"], "${FILES_TOKEN_2}");
    assert_eq!(servers["http"]["env"]["PROXY"], "${HTTP_PROXY_2}");
    let alone = config.servers[0].to_json(Arguments::Shown).unwrap();
    assert_eq!(alone["env"]["TOKEN"], "${FILES_TOKEN_2}");
}

/// The transport with all its values, but without secret marks: after reading, every value from a
/// variable has one.
fn unmarked(server: &ServerConfig) -> String {
    use crate::api::transport::TransportKind;
    match &server.transport.0 {
        TransportKind::Stdio(command) => {
            let parts = command.parts();
            format!(
                "{:?} {:?} {:?} {:?} {:?}",
                parts.program,
                parts.args,
                env(&parts.env),
                parts.cwd,
                parts.inherit
            )
        }
        TransportKind::Http(endpoint) => {
            let parts = endpoint.parts();
            let headers: Vec<_> = parts
                .headers
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect();
            let whole = format!("{} {:?} {:?}", parts.url, env(&headers), parts.bearer_env);
            let whole = format!("{whole} {} {:?}", parts.is_sse, parts.unix_socket);
            format!("{whole} {}", auth_values(&endpoint.auth))
        }
        TransportKind::Stream(_) | TransportKind::Channel { .. } => String::new(),
    }
}

fn auth_values(auth: &AuthConfig) -> String {
    let secret = auth.client_secret.as_ref();
    format!("{auth:?} {:?}", secret.map(|secret| secret.expose()))
}

/// The last value of each name wins.
fn env(pairs: &[(String, String)]) -> std::collections::BTreeMap<&str, &str> {
    pairs
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}
