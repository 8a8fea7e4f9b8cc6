//! The exposed names of tools: `server__tool`, valid in the API of every model.
//!
//! A name depends only on the names of the server and the tool, so it stays the same whatever other
//! servers and tools exist. The catalog maps it back.

use sha2::{Digest, Sha256};

use crate::ids::ServerName;

/// The longest exposed name.
pub const MAX_EXPOSED_NAME: usize = 64;

/// The separator between server and tool; no server name contains it.
pub const SEPARATOR: &str = "__";

/// Hexadecimal digits of the hash at the end of an altered name.
const HASH_DIGITS: usize = 16;

/// The exposed name of a tool: at most [`MAX_EXPOSED_NAME`] characters of `[A-Za-z0-9_-]`.
///
/// A name is altered if it is too long, has other characters, ends like an altered one, or belongs to a
/// server whose name ends in `_`, because `a_` + `b` and `a` + `_b` would be the same. An altered name
/// keeps as much of `server__tool` as fits, with `_` in place of every other character, and ends in `_`
/// and the first 16 hexadecimal digits of the SHA-256 of both names with a zero byte between them.
///
/// ```
/// use mcpvisor_core::ServerName;
/// use mcpvisor_core::names::exposed_name;
///
/// let github = ServerName::new("github")?;
/// assert_eq!(exposed_name(&github, "search_issues"), "github__search_issues");
/// assert_eq!(exposed_name(&github, "issues.search"), "github__issues_search_cf5c556464dc2069");
/// # Ok::<(), mcpvisor_core::InvalidServerName>(())
/// ```
pub fn exposed_name(server: &ServerName, tool: &str) -> String {
    let server = server.as_str();
    let full = [server, SEPARATOR, tool].concat();
    let plain = full.len() <= MAX_EXPOSED_NAME
        && full.bytes().all(is_allowed)
        && !server.ends_with('_')
        && !looks_altered(&full);
    if plain {
        full
    } else {
        altered(&full, server, tool)
    }
}

/// The prefix of all exposed names of a server.
pub fn exposed_prefix(server: &ServerName) -> String {
    cleaned(server.as_str())
}

/// Whether a name may be the exposed name of a tool of this server.
///
/// ```
/// use mcpvisor_core::ServerName;
/// use mcpvisor_core::names::may_expose;
///
/// let server = ServerName::new("my.files")?;
/// assert!(may_expose(&server, "my_files__read_2f0c9a6be8d15f77"));
/// assert!(!may_expose(&server, "my__read"));
/// # Ok::<(), mcpvisor_core::InvalidServerName>(())
/// ```
pub fn may_expose(server: &ServerName, exposed: &str) -> bool {
    exposed.starts_with(&exposed_start(server))
}

/// What the exposed names of a server's tools begin with. Those of another server may begin with it too.
pub fn exposed_start(server: &ServerName) -> String {
    cleaned(&[server.as_str(), SEPARATOR].concat())
}

fn altered(full: &str, server: &str, tool: &str) -> String {
    let mut name = cleaned(full);
    name.push('_');
    // No server name contains a zero byte, so no two pairs give the same input.
    let hash = Sha256::new()
        .chain_update(server)
        .chain_update([0])
        .chain_update(tool)
        .finalize();
    for byte in hash.iter().take(HASH_DIGITS / 2) {
        name.push_str(&format!("{byte:02x}"));
    }
    name
}

/// As much of a text as fits before the hash, in allowed characters.
fn cleaned(text: &str) -> String {
    text.chars()
        .map(|c| match u8::try_from(c) {
            Ok(byte) if is_allowed(byte) => c,
            _ => '_',
        })
        .take(MAX_EXPOSED_NAME - HASH_DIGITS - 1)
        .collect()
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn looks_altered(name: &str) -> bool {
    let bytes = name.as_bytes();
    let Some(start) = bytes.len().checked_sub(HASH_DIGITS + 1) else {
        return false;
    };
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    bytes[start] == b'_' && bytes[start + 1..].iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn name(server: &str, tool: &str) -> String {
        exposed_name(&ServerName::new(server).unwrap(), tool)
    }

    #[test]
    fn a_valid_name_is_not_altered() {
        assert_eq!(name("github", "search"), "github__search");
        assert_eq!(name("a-b", "c_d-E9"), "a-b__c_d-E9");
        assert_eq!(name("a", "__x__"), "a____x__");
        assert_eq!(name("a", &"x".repeat(61)).len(), 64);
    }

    #[test]
    fn an_altered_name_ends_in_a_hash_and_stays_recognizable() {
        assert!(name("github", "a.b").starts_with("github__a_b_"));
        assert!(name("käse", "x").starts_with("k_se__x_"));
        let long = name("github", &"x".repeat(200));
        assert_eq!(long.len(), MAX_EXPOSED_NAME);
        assert!(long.starts_with("github__xxx"));
        assert_ne!(long, name("github", &"x".repeat(201)));
    }

    /// A stored name must refer to the same tool in every later version.
    #[test]
    fn the_format_never_changes() {
        assert_eq!(
            name("github", "issues.search"),
            "github__issues_search_cf5c556464dc2069"
        );
        assert_eq!(name("k\u{e4}se", ""), "k_se___19ed0c7f84f98bf5");
    }

    #[test]
    fn similar_names_stay_distinct() {
        assert_ne!(name("a_", "b"), name("a", "_b"));
        assert_ne!(name("a_", "b\u{e4}"), name("a", "_b\u{e4}"));
        assert_ne!(name("a b", "x"), name("a.b", "x"));
        let altered = name("github", "a.b");
        let imitation = altered.strip_prefix("github__").unwrap();
        assert_ne!(name("github", imitation), altered);
    }

    /// Similar server names, and arbitrary ones.
    fn servers() -> impl Strategy<Value = ServerName> {
        prop_oneof!["[ab_.-]{1,4}", "[a-z\u{e4} ]{1,70}", any::<String>()]
            .prop_filter_map("not a server name", |name| ServerName::new(name).ok())
    }

    fn tools() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ab_.-]{0,4}",
            "[a-zA-Z0-9_-]{0,80}",
            "x{50,70}",
            any::<String>()
        ]
    }

    proptest! {
        #[test]
        fn every_name_is_valid_and_no_longer_than_64_characters(server in servers(), tool in tools()) {
            let exposed = exposed_name(&server, &tool);
            prop_assert!(exposed.len() <= MAX_EXPOSED_NAME);
            prop_assert!(exposed.bytes().all(is_allowed), "{exposed}");
            prop_assert!(exposed.starts_with(&exposed_prefix(&server)));
            prop_assert!(may_expose(&server, &exposed));
            prop_assert_eq!(&exposed, &exposed_name(&server, &tool));
        }

        /// No two pairs share a name, not even an imitation of an altered name.
        #[test]
        fn names_are_unique(pairs in proptest::collection::hash_set((servers(), tools()), 1..60)) {
            let mut seen: HashMap<String, (ServerName, String)> = HashMap::new();
            let imitations: Vec<_> = pairs
                .iter()
                .filter_map(|(server, tool)| {
                    let exposed = exposed_name(server, tool);
                    let (prefix, rest) = exposed.split_once(SEPARATOR)?;
                    Some((ServerName::new(prefix).ok()?, rest.to_owned()))
                })
                .collect();
            for pair in pairs.into_iter().chain(imitations) {
                let exposed = exposed_name(&pair.0, &pair.1);
                if let Some(other) = seen.insert(exposed, pair.clone()) {
                    prop_assert_eq!(other, pair);
                }
            }
        }
    }
}
