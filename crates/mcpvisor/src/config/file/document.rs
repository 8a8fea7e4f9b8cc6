//! Splits a config file into its parts and reads each of them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use mcpvisor_core::GovernorSettings;

use super::entry_reader::{self, Diagnostic, EntryReader};
use super::nearest::nearest_name;
use super::raw_entry::RawEntry;
use super::redacted_excerpt::SourceText;
use super::syntax_tree::{Member, Node, Span, Value};
use super::variables::Variables;
use super::{ConfigError, entry, keys};
use crate::config::server_config::validate_settings;
use crate::config::{Config, ConfigProblem, Severity};

/// The parts of a config file.
pub(super) struct Document<'n> {
    servers: &'n [Member],
    defaults: Option<&'n Node>,
    state_dir: Option<&'n Node>,
    connects: Option<&'n Node>,
    auth_store: Option<&'n Member>,
    /// Warnings about duplicate and misspelled keys at the top.
    warnings: Vec<ConfigProblem>,
    /// Whether variables are spelled as in opencode.
    bare: bool,
}

impl<'n> Document<'n> {
    pub(super) fn of(root: &'n Node, text: &SourceText<'_>) -> Result<Self, ConfigError> {
        let shape = |problem: String, span: &Span| ConfigError::Shape {
            problem,
            location: Box::new(text.locate(span)),
        };
        let Value::Object(top) = &root.value else {
            return Err(shape("must be one object".to_owned(), &root.span));
        };
        // The last of two is used, as in other JSON parsers; `null` means the same as absent.
        let find = |members: &'n [Member], key: &str| {
            let there = |member: &&Member| member.key == key && !member.node.is_null();
            members.iter().rfind(there)
        };
        let found = keys::SERVERS.iter().find_map(|key| find(top, key));
        let Some(mut found) = found else {
            return Err(shape(
                missing_servers(top),
                &(root.span.start..root.span.start + 1),
            ));
        };
        let mut bare = found.key == "mcp";
        // The settings of VS Code nest them one level deeper.
        if bare
            && let Value::Object(inner) = &found.node.value
            && let Some(servers) = find(inner, "servers")
            && !is_entry(&servers.node)
        {
            (found, bare) = (servers, false);
        }
        let Value::Object(servers) = &found.node.value else {
            let problem = format!("must hold an object under {:?}", found.key);
            return Err(shape(problem, &found.node.span));
        };
        Ok(Self {
            servers,
            defaults: find(top, keys::DEFAULTS).map(|member| &member.node),
            state_dir: find(top, keys::STATE_DIR).map(|member| &member.node),
            connects: find(top, keys::FLEET_CONNECTS).map(|member| &member.node),
            auth_store: find(top, keys::AUTH_STORE),
            warnings: warn_top_keys(top, text),
            bare,
        })
    }

    pub(super) fn read(
        self,
        mut variables: Variables<'_>,
        text: &SourceText<'_>,
    ) -> Result<Config, ConfigError> {
        variables.bare = self.bare;
        let mut config = Config::new();
        config.problems = self.warnings;
        let wrong = |diagnostic: Diagnostic| ConfigError::Shape {
            problem: format!("cannot be used: {}", diagnostic.message),
            location: Box::new(text.locate(&diagnostic.span)),
        };
        let defaults = match self.defaults {
            Some(node) => fleet(node, &variables, text, &mut config).map_err(wrong)?,
            None => RawEntry::default(),
        };
        if let Some(node) = self.state_dir {
            config.state_dir = Some(state_dir(node, &variables).map_err(wrong)?);
        }
        if let Some(node) = self.connects {
            let read = connects(node, &variables, text, &mut config);
            config.connects = Some(read.map_err(wrong)?);
        }
        if let Some(member) = self.auth_store {
            auth_store(member, text, &mut config).map_err(wrong)?;
        }
        let by_name = count_by_name(self.servers);
        for (index, entry) in self.servers.iter().enumerate() {
            if entry.node.is_null() {
                let message = "is null and ignored; remove it, or write an entry";
                config.problems.push(warning(entry, message, text));
                continue;
            }
            let (last, times) = by_name.get(entry.key.as_str()).copied().unwrap_or_default();
            if last != index {
                continue;
            }
            if times > 1 {
                let message = "is configured twice; the last entry is used";
                config.problems.push(warning(entry, message, text));
            }
            let (server, mut problems) = entry::read(entry, &defaults, &variables, text);
            if let Some(server) = server {
                let location = text.locate(&entry.key_span);
                config.origins.insert(server.name.clone(), location);
                config.servers.push(server);
            }
            config.problems.append(&mut problems);
        }
        Ok(config)
    }
}

/// A warning about a whole entry.
fn warning(entry: &Member, message: &str, text: &SourceText<'_>) -> ConfigProblem {
    let diagnostic = Diagnostic::new(&entry.key_span, message);
    diagnostic.into_problem(Some(&entry.key), Severity::Warning, text)
}

/// For each name, the index of its last entry and the number of entries. The last entry is used, as
/// in other JSON parsers, even if it is unusable.
fn count_by_name(servers: &[Member]) -> HashMap<&str, (usize, usize)> {
    let mut by_name = HashMap::new();
    let there = |(_, entry): &(usize, &Member)| !entry.node.is_null();
    for (index, entry) in servers.iter().enumerate().filter(there) {
        let (last, times) = by_name.entry(entry.key.as_str()).or_default();
        (*last, *times) = (index, *times + 1);
    }
    by_name
}

/// Reads the defaults of the fleet.
fn fleet(
    node: &Node,
    variables: &Variables<'_>,
    text: &SourceText<'_>,
    config: &mut Config,
) -> Result<RawEntry, Diagnostic> {
    let mut reader = EntryReader::new(variables, text);
    let mut raw = RawEntry::default();
    let members = entry_reader::object(keys::DEFAULTS, node)?;
    let prefix = format!("{}.", keys::DEFAULTS);
    reader.object(members, &keys::FLEET, &prefix, &mut raw)?;
    if !variables.as_written
        && let Err(invalid) = validate_settings(&raw.settings)
    {
        let key = format!("{prefix}{}", invalid.name);
        let message = format!("{key:?} {}", invalid.problem);
        return Err(reader.diagnose(&key, &node.span, message));
    }
    warn(reader.warnings, text, config);
    raw.secrets = reader.secrets;
    Ok(raw)
}

/// Adds warnings about the fleet.
fn warn(warnings: Vec<Diagnostic>, text: &SourceText<'_>, config: &mut Config) {
    let problem = |it: Diagnostic| it.into_problem(None, Severity::Warning, text);
    config.problems.extend(warnings.into_iter().map(problem));
}

/// Reads the limits of concurrent connects.
fn connects(
    node: &Node,
    variables: &Variables<'_>,
    text: &SourceText<'_>,
    config: &mut Config,
) -> Result<GovernorSettings, Diagnostic> {
    let mut reader = EntryReader::new(variables, text);
    let mut raw = RawEntry::default();
    let members = entry_reader::object(keys::FLEET_CONNECTS, node)?;
    let prefix = format!("{}.", keys::FLEET_CONNECTS);
    reader.object(members, &[keys::CONNECTS], &prefix, &mut raw)?;
    warn(std::mem::take(&mut reader.warnings), text, config);
    raw.connects()
        .map_err(|invalid| reader.diagnose(invalid.name, &node.span, entry::setting(&invalid)))
}

/// Reads the state folder. It is shown in errors, so no variable is expanded in it except the home
/// folder.
fn state_dir(node: &Node, variables: &Variables<'_>) -> Result<PathBuf, Diagnostic> {
    let wrong = |problem: &str| entry_reader::wrong(keys::STATE_DIR, node, problem);
    let folder = entry_reader::name(keys::STATE_DIR, node)?;
    if folder.is_empty() || folder.contains("${") {
        return Err(wrong(
            "must be a folder without variables; ~/ is the home folder",
        ));
    }
    let Some(within) = folder.strip_prefix("~/") else {
        return Ok(folder.into());
    };
    let home = variables
        .lookup("HOME")
        .ok_or_else(|| wrong("needs the variable HOME, which is not set"))?;
    Ok(Path::new(&home).join(within))
}

/// Reads where tokens are stored.
#[cfg(feature = "auth")]
fn auth_store(member: &Member, _: &SourceText<'_>, config: &mut Config) -> Result<(), Diagnostic> {
    use crate::auth::StoreChoice;
    let store = entry_reader::choice(&keys::STORES, keys::AUTH_STORE, &member.node)?;
    config.auth_store = Some(match store {
        "keyring" => StoreChoice::Keyring,
        "file" => StoreChoice::File,
        _ => StoreChoice::Auto,
    });
    Ok(())
}

#[cfg(not(feature = "auth"))]
fn auth_store(
    member: &Member,
    text: &SourceText<'_>,
    config: &mut Config,
) -> Result<(), Diagnostic> {
    entry_reader::choice(&keys::STORES, keys::AUTH_STORE, &member.node)?;
    let message = format!(
        "{:?} is ignored: this build does not support authorization",
        keys::AUTH_STORE
    );
    let diagnostic = Diagnostic::new(&member.key_span, message);
    warn(vec![diagnostic], text, config);
    Ok(())
}

/// Whether an object is an entry rather than an object of entries.
fn is_entry(node: &Node) -> bool {
    let Value::Object(members) = &node.value else {
        return true;
    };
    let scalar = |member: &Member| !matches!(member.node.value, Value::Object(_));
    !members.is_empty() && members.iter().any(scalar)
}

/// Warns about duplicates and misspellings of our keys at the top. Other keys are ignored: a config
/// may be part of an editor's settings.
fn warn_top_keys<'n>(top: &'n [Member], text: &SourceText<'_>) -> Vec<ConfigProblem> {
    let ours = keys::TOP;
    let known = |key: &str| ours.contains(&key) || keys::SERVERS.contains(&key);
    let mut seen = HashSet::new();
    let mut warning = |member: &'n Member| {
        let shown = entry_reader::shown(&member.key);
        let message = if !known(&member.key) {
            let near = nearest_name(&member.key, ours)?;
            format!("{shown:?} is ignored; did you mean {near:?}?")
        } else if member.node.is_null() || seen.insert(member.key.as_str()) {
            return None;
        } else {
            format!("{shown:?} is set twice; only the last one is used")
        };
        let diagnostic = Diagnostic::new(&member.key_span, message);
        Some(diagnostic.into_problem(None, Severity::Warning, text))
    };
    top.iter().filter_map(&mut warning).collect()
}

fn missing_servers(top: &[Member]) -> String {
    let ours = keys::SERVERS[0];
    let there = top.iter().filter(|member| !member.node.is_null());
    match nearest_name(ours, there.map(|member| member.key.as_str())) {
        Some(near) => format!("has no {ours:?}; did you mean that with {near:?}?"),
        None => format!("has no {ours:?} object; write {{ {ours:?}: {{ … }} }}"),
    }
}
