//! Compares configs: decides what a reload does with a server.

use serde::Serialize;

use crate::config::ServerConfig;
use crate::server::active_config::ActiveConfig;
use crate::server::message::ConnectionUpdate;

/// The name of the headers in a report, which include the token.
const HEADERS: &str = "headers";

/// What a reload does with a server, and which settings cause it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerChange {
    /// It is new.
    Added,
    /// It is gone from the config: calls in flight may finish, then it is closed.
    Removed,
    /// Its transport changed: the connection is replaced after calls in flight have finished.
    Restarted {
        /// The differences that cause the restart; others are applied with it.
        why: Vec<&'static str>,
    },
    /// Settings changed that need no new connection; `enabled` among them enables or disables it.
    Adjusted {
        /// The settings that differ.
        what: Vec<&'static str>,
    },
    /// Its new entry is invalid, so the old one stays active.
    Kept,
    /// Nothing differs.
    Unchanged,
}

/// Compares the active config of a server with a new one. A token from the environment is not part
/// of the config, so it is compared too.
pub(super) fn compare_active(old: &ActiveConfig, new: &ServerConfig) -> ServerChange {
    let mut why = old.transport.differences(&new.transport);
    if old.protocol != new.protocol || old.prefer_older_protocol != new.prefer_older_protocol {
        why.push("protocol");
    }
    if !why.is_empty() {
        return ServerChange::Restarted { why };
    }
    let (before, after) = (&old.settings, &new.settings);
    let connections = (&before.connections, &after.connections);
    let differs = [
        (
            before.backoff != after.backoff || before.budget != after.budget,
            "reconnect",
        ),
        (before.health != after.health, "health"),
        (
            before.admission != after.admission || before.messages != after.messages,
            "limits",
        ),
        (before.timeouts != after.timeouts, "timeouts"),
        (before.close != after.close, "close"),
        (before.retry != after.retry, "retries"),
        (before.listing != after.listing, "listing"),
        (old.tools != new.tools, "tools"),
        (before.rest.lazy != after.rest.lazy, "start"),
        (
            before.rest.sleep_after != after.rest.sleep_after,
            "sleepAfter",
        ),
        (
            connections.0.instances != connections.1.instances,
            "instances",
        ),
        (connections.0.affinity != connections.1.affinity, "affinity"),
        (connections.0.scope != connections.1.scope, "scope"),
        (
            connections.0.max_connections != connections.1.max_connections,
            "maxConnections",
        ),
        (old.pin != new.pin, "pin"),
        (old.check_arguments != new.check_arguments, "checkArguments"),
        (old.check_results != new.check_results, "checkResults"),
        (old.required != new.required, "required"),
        (old.enabled != new.enabled, "enabled"),
        (
            old.transport.sends_otherwise(&new.transport) || old.has_new_token(),
            HEADERS,
        ),
    ];
    let what: Vec<&'static str> = differs
        .into_iter()
        .filter_map(|(differs, what)| differs.then_some(what))
        .collect();
    if what.is_empty() {
        ServerChange::Unchanged
    } else {
        ServerChange::Adjusted { what }
    }
}

/// What a change requires of the connection.
pub(super) fn connection_update(change: &ServerChange) -> ConnectionUpdate {
    match change {
        ServerChange::Restarted { .. } => ConnectionUpdate::Reconnect,
        ServerChange::Adjusted { what } if what.contains(&HEADERS) => ConnectionUpdate::Headers,
        _ => ConnectionUpdate::None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mcpvisor_core::settings::ConnectionScope;

    use super::*;
    use crate::{ResultCheck, ToolFilter, Transport};

    fn server() -> ServerConfig {
        let transport = Transport::channel(|_| async {});
        ServerConfig::new("a", transport).unwrap()
    }

    fn compare(old: &ServerConfig, new: &ServerConfig) -> ServerChange {
        compare_active(&ActiveConfig::new(old.clone(), None), new)
    }

    #[test]
    fn every_changed_setting_is_named_and_needs_no_restart() {
        let old = server();
        assert_eq!(compare(&old, &old.clone()), ServerChange::Unchanged);
        type Change = (&'static str, fn(&mut ServerConfig));
        let changes: [Change; 19] = [
            ("reconnect", |it| it.settings.budget.attempts += 1),
            ("health", |it| it.settings.health.threshold += 1),
            ("limits", |it| it.settings.admission.in_flight += 1),
            ("timeouts", |it| {
                it.settings.timeouts.call += Duration::from_secs(1)
            }),
            ("close", |it| {
                it.settings.close.drain += Duration::from_secs(1)
            }),
            ("retries", |it| it.settings.retry.trusted = true),
            ("listing", |it| it.settings.listing.max_items += 1),
            ("tools", |it| {
                it.tools = ToolFilter {
                    allow: Vec::new(),
                    deny: vec!["x".to_owned()],
                };
            }),
            ("start", |it| it.settings.rest.lazy = true),
            ("sleepAfter", |it| {
                it.settings.rest.sleep_after = Some(Duration::from_secs(1))
            }),
            ("instances", |it| it.settings.connections.instances = 2),
            ("affinity", |it| it.settings.connections.affinity = true),
            ("scope", |it| {
                it.settings.connections.scope = ConnectionScope::Client;
            }),
            ("maxConnections", |it| {
                it.settings.connections.max_connections = 3;
            }),
            ("pin", |it| it.pin = true),
            ("checkArguments", |it| it.check_arguments = true),
            ("checkResults", |it| it.check_results = ResultCheck::Warn),
            ("required", |it| it.required = true),
            ("enabled", |it| it.enabled = false),
        ];
        let mut all = old.clone();
        for (name, change) in changes {
            let mut new = old.clone();
            change(&mut new);
            let what = vec![name];
            assert_eq!(compare(&old, &new), ServerChange::Adjusted { what });
            change(&mut all);
        }
        let what = changes.map(|(name, _)| name).to_vec();
        assert_eq!(compare(&old, &all), ServerChange::Adjusted { what });
    }

    #[test]
    fn the_size_of_messages_is_one_of_the_limits() {
        let old = server();
        let mut larger = old.clone();
        larger.settings.messages.max_bytes += 1;
        let what = vec!["limits"];
        assert_eq!(compare(&old, &larger), ServerChange::Adjusted { what });
    }

    #[cfg(feature = "http")]
    #[test]
    fn new_headers_need_no_restart_but_a_new_address_or_certificate_does() {
        let server = |it: crate::HttpEndpoint| ServerConfig::new("a", it).unwrap();
        let plain = || Transport::http("http://localhost").header("K", "v");
        let old = server(plain());
        let adjusted = || ServerChange::Adjusted {
            what: vec![HEADERS],
        };
        for other in [
            Transport::http("http://localhost"),
            plain().header("K", "w"),
            plain().secret("v"),
        ] {
            assert_eq!(compare(&old, &server(other)), adjusted());
        }
        let other_address = Transport::http("http://127.0.0.1").header("K", "w");
        for (other, why) in [
            (other_address, "url"),
            (plain().root_certificate("/a.pem"), "certificates"),
            (plain().client_certificate("/a.pem"), "certificates"),
            (plain().header("K", "\n"), "headers"),
            (plain().bearer_token_env("NO_SUCH_VARIABLE"), "headers"),
        ] {
            let why = vec![why];
            let change = compare(&old, &server(other));
            assert_eq!(change, ServerChange::Restarted { why });
        }
    }

    #[cfg(feature = "http")]
    #[test]
    fn a_new_token_in_the_environment_is_a_new_header() {
        // Any variable that is set serves as the token.
        let endpoint = Transport::http("http://localhost").bearer_token_env("PATH");
        let server = ServerConfig::new("a", endpoint).unwrap();
        let mut old = ActiveConfig::new(server.clone(), None);
        assert_eq!(compare_active(&old, &server), ServerChange::Unchanged);
        old.forget_token();
        let what = vec![HEADERS];
        assert_eq!(
            compare_active(&old, &server),
            ServerChange::Adjusted { what }
        );
        let what = vec!["pin", HEADERS];
        assert_eq!(
            compare_active(&old, &server.pin(true)),
            ServerChange::Adjusted { what }
        );
    }

    #[test]
    fn a_changed_transport_is_a_restart_and_names_the_settings() {
        let old = server();
        let mut new = old.clone();
        new.transport = Transport::channel(|_| async {});
        let why = vec!["transport"];
        assert_eq!(compare(&old, &new), ServerChange::Restarted { why });
        #[cfg(feature = "stdio")]
        {
            let stdio = |command: crate::StdioCommand| ServerConfig::new("a", command).unwrap();
            let plain = || Transport::stdio("x").arg("1").env("K", "v");
            assert_eq!(
                compare(&stdio(plain()), &stdio(plain())),
                ServerChange::Unchanged
            );
            for (other, why) in [
                (
                    Transport::stdio("y").arg("1").env("K", "v"),
                    vec!["command"],
                ),
                (plain().arg("2"), vec!["args"]),
                (plain().env("K", "w"), vec!["env"]),
                (plain().inherit_env("L"), vec!["env"]),
                (plain().cwd("/"), vec!["cwd"]),
                (Transport::stdio("y").env("K", "v"), vec!["command", "args"]),
            ] {
                let change = compare(&stdio(plain()), &stdio(other));
                assert_eq!(change, ServerChange::Restarted { why });
            }
        }
    }
}
