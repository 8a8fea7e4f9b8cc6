//! Reads a fleet from the files that MCP clients share: JSON with comments, or TOML.
//!
//! One bad entry costs that server, not the fleet. The text becomes a tree in [`json`] or [`toml`];
//! what an entry may say is in [`keys`], what it means in [`entry`]. What is done with it is the
//! runtime's business.

mod draft;
mod duration;
mod encoding;
#[cfg_attr(
    not(all(feature = "stdio", feature = "http")),
    allow(
        dead_code,
        unused_variables,
        reason = "parts of it are for one way to reach a server alone"
    )
)]
mod entry;
mod error;
mod json;
mod keys;
mod reader;
mod schema;
mod text;
mod toml;
mod tree;
mod variables;
#[cfg_attr(
    not(all(feature = "stdio", feature = "http")),
    allow(
        dead_code,
        unused_variables,
        reason = "parts of it are for one way to reach a server alone"
    )
)]
mod written;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use mcpvisor_core::GovernorSettings;

use super::{Config, ConfigProblem, ConfigSource, Severity};
use draft::Draft;
use reader::Reader;
use text::Text;
use tree::{Member, Node, Value};
use variables::Variables;

pub use duration::{InvalidDuration, MAX_DURATION, parse_duration};
pub(super) use encoding::text_of;
pub use error::ConfigError;
pub use reader::nearest_name;
pub use schema::schema;
pub use written::Arguments;

/// No config file may be larger, so that a wrong path (a device, a log) ends in an error.
pub const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Toml,
}

impl Config {
    /// Reads a config file, TOML if its name ends so, and JSON otherwise; `${VAR}` is taken from the
    /// environment of this process.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::from_source(&ConfigSource::read(path.as_ref())?)
    }

    /// The same for a file that was read before.
    pub fn from_source(source: &ConfigSource) -> Result<Self, ConfigError> {
        Self::from_source_with(source, |name| std::env::var(name).ok())
    }

    /// The same; `variable` looks up `${VAR}`.
    pub fn from_source_with(
        source: &ConfigSource,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let format = match source.is_toml() {
            true => Format::Toml,
            false => Format::Json,
        };
        let variables = Variables::new(&variable);
        read(Some(source.path()), source.text(), format, variables)
    }

    /// A file with its `${VAR}` as they are written, for a person to review. Nothing of it can be
    /// started.
    pub(super) fn as_written(source: &ConfigSource) -> Result<Self, ConfigError> {
        let format = match source.is_toml() {
            true => Format::Toml,
            false => Format::Json,
        };
        let variables = Variables::as_written();
        read(Some(source.path()), source.text(), format, variables)
    }

    /// Reads the text of a config; `variable` looks up `${VAR}`.
    ///
    /// ```
    /// use mcpvisor::Config;
    ///
    /// let config = Config::from_json(
    ///     r#"{ "mcpServers": { "files": { "command": "mcp-files", "args": ["${ROOT}"] } } }"#,
    ///     |name| (name == "ROOT").then(|| "/srv".to_owned()),
    /// )?;
    /// assert!(config.problems.is_empty());
    /// # Ok::<(), mcpvisor::config::ConfigError>(())
    /// ```
    pub fn from_json(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        read(None, text, Format::Json, Variables::new(&variable))
    }

    /// Reads the text of a config that is TOML; `variable` looks up `${VAR}`.
    ///
    /// ```
    /// use mcpvisor::Config;
    ///
    /// let text = r#"
    /// [mcp_servers.files]
    /// command = "mcp-files"
    /// reconnect = { attempts = 5, within = "2m" }
    /// "#;
    /// let config = Config::from_toml(text, |_| None)?;
    /// assert_eq!(config.servers[0].settings.budget.attempts, 5);
    /// # Ok::<(), mcpvisor::config::ConfigError>(())
    /// ```
    pub fn from_toml(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        read(None, text, Format::Toml, Variables::new(&variable))
    }
}

fn read(
    file: Option<&Path>,
    source: &str,
    format: Format,
    variables: Variables<'_>,
) -> Result<Config, ConfigError> {
    let mut text = Text::new(file, source);
    text.toml = format == Format::Toml;
    let parsed = match format {
        Format::Json => json::parse(source),
        Format::Toml => toml::parse(source),
    };
    let root = parsed.map_err(|unreadable| ConfigError::Syntax {
        format: match format {
            Format::Json => "JSON",
            Format::Toml => "TOML",
        },
        problem: unreadable.problem,
        location: Box::new(text.locate(&unreadable.span)),
    })?;
    text.understand(&root);
    Document::of(&root, &text)?.read(variables, &text)
}

/// The parts of a config file.
struct Document<'n> {
    servers: &'n [Member],
    defaults: Option<&'n Node>,
    state_dir: Option<&'n Node>,
    connects: Option<&'n Node>,
    /// What is perhaps one of these.
    doubts: Vec<ConfigProblem>,
    /// Whether variables are written as opencode writes them.
    bare: bool,
}

impl<'n> Document<'n> {
    fn of(root: &'n Node, text: &Text<'_>) -> Result<Self, ConfigError> {
        let shape = |problem: String, span: &tree::Span| ConfigError::Shape {
            problem,
            location: Box::new(text.locate(span)),
        };
        let Value::Object(top) = &root.value else {
            return Err(shape("must be one object".to_owned(), &root.span));
        };
        // The later of two counts, as in every other reader of JSON; `null` is as good as absent.
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
        // The settings of VS Code have them one deeper.
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
            doubts: doubts(top, text),
            bare,
        })
    }

    fn read(self, variables: Variables<'_>, text: &Text<'_>) -> Result<Config, ConfigError> {
        let variables = match self.bare {
            true => variables.with_bare(),
            false => variables,
        };
        let mut config = Config::new();
        config.problems = self.doubts;
        let wrong = |said: reader::Said| ConfigError::Shape {
            problem: format!("cannot be used: {}", said.message),
            location: Box::new(text.locate(&said.span)),
        };
        let defaults = match self.defaults {
            Some(node) => fleet(node, &variables, text, &mut config).map_err(wrong)?,
            None => Draft::default(),
        };
        if let Some(node) = self.state_dir {
            config.state_dir = Some(state_dir(node, &variables).map_err(wrong)?);
        }
        if let Some(node) = self.connects {
            let read = connects(node, &variables, text, &mut config);
            config.connects = Some(read.map_err(wrong)?);
        }
        let counting = counting(self.servers);
        for (index, entry) in self.servers.iter().enumerate() {
            if entry.node.is_null() {
                config.problems.push(null_entry(entry, text));
                continue;
            }
            let (last, times) = counting
                .get(entry.key.as_str())
                .copied()
                .unwrap_or_default();
            if last != index {
                continue;
            }
            if times > 1 {
                config.problems.push(twice(entry, text));
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

/// An entry that is as good as absent.
fn null_entry(entry: &Member, text: &Text<'_>) -> ConfigProblem {
    ConfigProblem {
        server: Some(reader::shown(&entry.key)),
        message: "is null, which is as good as absent; remove it, or write what it starts"
            .to_owned(),
        severity: Severity::Warning,
        location: Some(text.locate(&entry.key_span)),
    }
}

/// Of each name, which entry counts and how many there are. As in every other reader of JSON it is
/// the last one, and if that one cannot be used, nothing of the others is.
fn counting(servers: &[Member]) -> HashMap<&str, (usize, usize)> {
    let mut counting = HashMap::new();
    let there = |(_, entry): &(usize, &Member)| !entry.node.is_null();
    for (index, entry) in servers.iter().enumerate().filter(there) {
        let (last, times) = counting.entry(entry.key.as_str()).or_default();
        (*last, *times) = (index, *times + 1);
    }
    counting
}

/// An entry that is not the first of its name.
fn twice(entry: &Member, text: &Text<'_>) -> ConfigProblem {
    ConfigProblem {
        server: Some(reader::shown(&entry.key)),
        message: "is there twice; the later entry counts".to_owned(),
        severity: Severity::Warning,
        location: Some(text.locate(&entry.key_span)),
    }
}

/// The defaults of the fleet.
fn fleet(
    node: &Node,
    variables: &Variables<'_>,
    text: &Text<'_>,
    config: &mut Config,
) -> Result<Draft, reader::Said> {
    let mut reader = Reader::new(variables);
    reader.toml = text.toml;
    let mut draft = Draft::default();
    let members = reader::object(keys::DEFAULTS, node)?;
    let prefix = format!("{}.", keys::DEFAULTS);
    reader.object(members, &keys::FLEET, &prefix, &mut draft)?;
    let valid = match variables.are_as_written() {
        true => Ok(()),
        false => draft.validate(),
    };
    valid.map_err(|invalid| reader::Said {
        message: format!("\"{prefix}{}\" {}", invalid.name, invalid.problem),
        span: reader
            .place(&format!("{prefix}{}", invalid.name))
            .unwrap_or(node.span.clone()),
    })?;
    let warn = |said: reader::Said| ConfigProblem {
        server: None,
        message: said.message,
        severity: Severity::Warning,
        location: Some(text.locate(&said.span)),
    };
    config
        .problems
        .extend(reader.warnings.into_iter().map(warn));
    draft.secrets = reader.secrets;
    Ok(draft)
}

/// How many servers connect at once.
fn connects(
    node: &Node,
    variables: &Variables<'_>,
    text: &Text<'_>,
    config: &mut Config,
) -> Result<GovernorSettings, reader::Said> {
    let mut reader = Reader::new(variables);
    let mut draft = Draft::default();
    let members = reader::object(keys::FLEET_CONNECTS, node)?;
    let prefix = format!("{}.", keys::FLEET_CONNECTS);
    reader.object(members, &[keys::CONNECTS], &prefix, &mut draft)?;
    let warnings = std::mem::take(&mut reader.warnings).into_iter();
    config.problems.extend(warnings.map(|said| ConfigProblem {
        server: None,
        message: said.message,
        severity: Severity::Warning,
        location: Some(text.locate(&said.span)),
    }));
    draft.connects().map_err(|invalid| reader::Said {
        message: entry::setting(&invalid),
        span: reader.place(invalid.name).unwrap_or(node.span.clone()),
    })
}

/// The state folder. It is shown in errors about it, so no variable is replaced in it but the home
/// folder.
fn state_dir(node: &Node, variables: &Variables<'_>) -> Result<PathBuf, reader::Said> {
    let wrong = |problem: &str| reader::Said {
        message: format!("{:?} {problem}", keys::STATE_DIR),
        span: node.span.clone(),
    };
    let folder = reader::name(keys::STATE_DIR, node)?;
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

/// Whether an object is a server, and not an object of servers.
fn is_entry(node: &Node) -> bool {
    let Value::Object(members) = &node.value else {
        return true;
    };
    let scalar = |member: &Member| !matches!(member.node.value, Value::Object(_));
    !members.is_empty() && members.iter().any(scalar)
}

/// Keys at the top that are ours and there twice, or nearly ours. All others are somebody else's: a
/// config may be part of the settings of an editor.
fn doubts<'n>(top: &'n [Member], text: &Text<'_>) -> Vec<ConfigProblem> {
    let ours = [keys::DEFAULTS, keys::STATE_DIR, keys::FLEET_CONNECTS];
    let known = |key: &str| ours.contains(&key) || keys::SERVERS.contains(&key);
    let mut seen = HashSet::new();
    let mut doubt = |member: &'n Member| {
        let shown = reader::shown(&member.key);
        let message = if !known(&member.key) {
            let near = reader::nearest_name(&member.key, ours.into_iter())?;
            format!("{shown:?} is ignored; did you mean {near:?}?")
        } else if member.node.is_null() || seen.insert(member.key.as_str()) {
            return None;
        } else {
            format!("{shown:?} is there twice; the later one counts, and nothing of the other")
        };
        Some(ConfigProblem {
            server: None,
            message,
            severity: Severity::Warning,
            location: Some(text.locate(&member.key_span)),
        })
    };
    top.iter().filter_map(&mut doubt).collect()
}

fn missing_servers(top: &[Member]) -> String {
    let ours = keys::SERVERS[0];
    let there = top.iter().filter(|member| !member.node.is_null());
    match reader::nearest_name(ours, there.map(|member| member.key.as_str())) {
        Some(near) => format!("has no {ours:?}; did you mean that by {near:?}?"),
        None => format!("has no {ours:?} object; write {{ {ours:?}: {{ … }} }}"),
    }
}

#[cfg(all(feature = "diagnostics", feature = "stdio", feature = "http"))]
#[cfg(test)]
mod fuzz;
#[cfg(all(feature = "stdio", feature = "http"))]
#[cfg(test)]
mod roundtrip;
#[cfg(all(feature = "stdio", feature = "http"))]
#[cfg(test)]
mod tests;
