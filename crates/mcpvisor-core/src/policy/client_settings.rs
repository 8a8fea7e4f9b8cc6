//! What the clients of one server want from its session: subscriptions and log levels.
//!
//! Clients share a connection, so the server sees one subscription per resource and one log level: the
//! most verbose that any client wants. What it sends goes only to the clients that want it.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::ClientId;

/// Parents of a resource that are looked up; deeper ones are not.
const MAX_PARENTS: usize = 64;

/// The severity of a log message, and the least one that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    missing_docs,
    reason = "the severities of RFC 5424, which the protocol uses"
)]
pub enum LogSeverity {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The settings of all clients of one server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The clients that subscribed to each resource; never empty.
    subscribers: BTreeMap<String, BTreeSet<ClientId>>,
    levels: BTreeMap<ClientId, LogSeverity>,
}

impl ClientSettings {
    /// Adds a subscription of a client.
    pub fn subscribe(&mut self, client: ClientId, uri: &str) {
        match self.subscribers.get_mut(uri) {
            Some(clients) => drop(clients.insert(client)),
            None => drop(
                self.subscribers
                    .insert(uri.to_owned(), BTreeSet::from([client])),
            ),
        }
    }

    /// Removes a subscription of a client. Returns whether another client has one.
    pub fn unsubscribe(&mut self, client: ClientId, uri: &str) -> bool {
        let Some(clients) = self.subscribers.get_mut(uri) else {
            return false;
        };
        clients.remove(&client);
        let is_wanted = !clients.is_empty();
        if !is_wanted {
            self.subscribers.remove(uri);
        }
        is_wanted
    }

    /// Whether any client subscribed to a resource.
    pub fn is_subscribed(&self, uri: &str) -> bool {
        self.subscribers.contains_key(uri)
    }

    /// The resources that clients subscribed to.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.subscribers.keys().map(String::as_str)
    }

    /// Sets the level of a client, or removes it. Returns the one before.
    pub fn set_level(
        &mut self,
        client: ClientId,
        level: Option<LogSeverity>,
    ) -> Option<LogSeverity> {
        match level {
            Some(level) => self.levels.insert(client, level),
            None => self.levels.remove(&client),
        }
    }

    /// The level for the server: the most verbose of all clients. `None` if no client has set one.
    pub fn level(&self) -> Option<LogSeverity> {
        self.levels.values().copied().min()
    }

    /// The levels of the clients that have set one.
    pub fn levels(&self) -> impl Iterator<Item = (ClientId, LogSeverity)> {
        self.levels.iter().map(|(client, level)| (*client, *level))
    }

    /// Takes over the levels that clients set at another instance.
    pub fn inherit_levels(&mut self, other: &Self) {
        self.levels.clone_from(&other.levels);
    }

    /// Removes everything that a client wants. Returns whether there was anything.
    pub fn release(&mut self, client: ClientId) -> bool {
        let mut is_changed = self.levels.remove(&client).is_some();
        self.subscribers.retain(|_, clients| {
            is_changed |= clients.remove(&client);
            !clients.is_empty()
        });
        is_changed
    }

    /// The clients that get the update of a resource: those that subscribed to it, or to a resource that
    /// it is a part of.
    pub fn recipients_of_update(&self, uri: &str) -> BTreeSet<ClientId> {
        let ends = uri
            .char_indices()
            .filter(|(_, it)| matches!(it, '/' | '?' | '#'));
        // A parent may be written with or without its last slash.
        let parents = ends
            .take(MAX_PARENTS)
            .flat_map(|(end, _)| [&uri[..end], &uri[..=end]]);
        let uris = std::iter::once(uri).chain(parents);
        let clients = uris.filter_map(|uri| self.subscribers.get(uri));
        clients.flatten().copied().collect()
    }

    /// Whether a client gets a log message. A client without a level gets what it caused itself, and
    /// everything as long as no client has set a level.
    pub fn gets_log(&self, client: ClientId, severity: LogSeverity, is_cause: bool) -> bool {
        match self.levels.get(&client) {
            Some(level) => severity >= *level,
            None => is_cause || self.levels.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn a_resource_is_wanted_until_its_last_subscriber_leaves() {
        let mut settings = ClientSettings::default();
        settings.subscribe(A, "a:b");
        settings.subscribe(A, "a:b");
        settings.subscribe(B, "a:b");
        assert!(settings.unsubscribe(A, "a:b"), "B is left");
        assert!(settings.unsubscribe(A, "a:b"), "A had none");
        assert!(settings.is_subscribed("a:b"));
        assert!(!settings.unsubscribe(B, "a:b"));
        assert!(!settings.is_subscribed("a:b"));
        assert!(!settings.unsubscribe(B, "a:b"));
        assert_eq!(settings, ClientSettings::default());
    }

    #[test]
    fn the_most_verbose_level_counts() {
        let mut settings = ClientSettings::default();
        assert_eq!(settings.level(), None);
        assert_eq!(settings.set_level(A, Some(LogSeverity::Error)), None);
        settings.set_level(B, Some(LogSeverity::Debug));
        assert_eq!(settings.level(), Some(LogSeverity::Debug));
        let before = settings.set_level(B, Some(LogSeverity::Alert));
        assert_eq!(before, Some(LogSeverity::Debug));
        assert_eq!(settings.level(), Some(LogSeverity::Error));
        settings.set_level(A, None);
        assert_eq!(settings.level(), Some(LogSeverity::Alert));
    }

    #[test]
    fn a_released_client_leaves_nothing_behind() {
        let mut settings = ClientSettings::default();
        assert!(!settings.release(A));
        for uri in ["a:1", "a:2"] {
            settings.subscribe(A, uri);
        }
        settings.subscribe(B, "a:2");
        settings.set_level(A, Some(LogSeverity::Debug));
        assert!(settings.release(A));
        assert_eq!(settings.uris().collect::<Vec<_>>(), ["a:2"]);
        assert_eq!(settings.level(), None);
        assert!(settings.release(B));
        assert_eq!(settings, ClientSettings::default());
    }

    #[test]
    fn an_update_goes_to_the_subscribers_of_the_resource_and_of_its_parents() {
        let mut settings = ClientSettings::default();
        settings.subscribe(A, "file:///work");
        settings.subscribe(B, "file:///work/a.txt");
        let recipients = |uri: &str| Vec::from_iter(settings.recipients_of_update(uri));
        assert_eq!(recipients("file:///work"), [A]);
        assert_eq!(recipients("file:///work/a.txt"), [A, B]);
        assert_eq!(recipients("file:///work/b.txt"), [A]);
        assert_eq!(recipients("file:///work/a.txt#line"), [A, B]);
        assert_eq!(recipients("file:///workshop"), []);
        assert_eq!(recipients("file:///wörk/a.txt"), []);
        let deep = format!("file:///work{}", "/".repeat(100_000));
        assert_eq!(recipients(&deep), [A]);
    }

    #[test]
    fn each_client_gets_messages_from_its_own_level_on() {
        let mut settings = ClientSettings::default();
        assert!(
            settings.gets_log(A, LogSeverity::Debug, false),
            "the server decides"
        );
        settings.set_level(A, Some(LogSeverity::Error));
        for (severity, gets) in [
            (LogSeverity::Debug, false),
            (LogSeverity::Warning, false),
            (LogSeverity::Error, true),
            (LogSeverity::Emergency, true),
        ] {
            assert_eq!(settings.gets_log(A, severity, false), gets, "{severity:?}");
            assert_eq!(settings.gets_log(A, severity, true), gets, "{severity:?}");
        }
        assert!(!settings.gets_log(B, LogSeverity::Emergency, false));
        assert!(settings.gets_log(B, LogSeverity::Debug, true));
    }
}
