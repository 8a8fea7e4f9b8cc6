//! Parses the server and tool of `call` and `prompt`.
//!
//! `srv tool`, `srv.tool`, `srv:tool`, `srv/tool` and `srv__tool` are accepted unless ambiguous.

use mcpvisor::{Config, may_expose};

use crate::failure::Failure;
use crate::fleet;

/// Separators between server and tool in one word.
const SEPARATORS: [&str; 4] = ["__", ".", ":", "/"];

/// A tool of a server, and the words that follow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'w> {
    pub(crate) server: &'w str,
    pub(crate) tool: &'w str,
    /// The word it was written as, which may be the tool's exposed name.
    pub(crate) exposed: Option<&'w str>,
    pub(crate) rest: &'w [String],
}

/// Why the words name no target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoTarget<'w> {
    /// The server exists, but no tool follows.
    NoTool(&'w str),
    /// Several readings name an existing server.
    Ambiguous(Vec<(&'w str, &'w str)>),
    /// There is no server of this name.
    NoServer(&'w str),
}

impl<'w> Target<'w> {
    /// Parses the words; `is_server` knows the server names.
    pub(crate) fn parse(
        words: &'w [String],
        is_server: impl Fn(&str) -> bool,
    ) -> Result<Self, NoTarget<'w>> {
        let Some((first, rest)) = words.split_first() else {
            return Err(NoTarget::NoServer(""));
        };
        let joined = readings(first, &is_server);
        let named = is_server(first);
        match (rest.split_first(), joined.as_slice()) {
            (Some((tool, rest)), _) if named && !is_pair(tool) => Ok(Self {
                server: first,
                tool,
                exposed: None,
                rest,
            }),
            (_, [(server, tool)]) => Ok(Self {
                server,
                tool,
                exposed: Some(first),
                rest,
            }),
            (_, []) if named => Err(NoTarget::NoTool(first)),
            (_, []) => Err(match server_without_tool(first, &is_server) {
                Some(server) => NoTarget::NoTool(server),
                None => NoTarget::NoServer(server_part(first)),
            }),
            (_, _) => Err(NoTarget::Ambiguous(joined)),
        }
    }
}

/// The kind of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetKind {
    Tool,
    Prompt,
}

/// Finds the target of a command in its config.
pub(crate) fn resolve<'w>(
    config: &'w Config,
    words: &'w [String],
    kind: TargetKind,
) -> Result<Target<'w>, Failure> {
    let is_server = |name: &str| {
        let mut servers = config.servers.iter();
        let mut problems = config.problems.iter();
        servers.any(|server| server.name.as_str() == name)
            || problems.any(|problem| problem.server.as_deref() == Some(name))
    };
    Err(match Target::parse(words, is_server) {
        Ok(target) => return Ok(target),
        Err(NoTarget::NoTool(server)) => {
            let (noun, usage) = match kind {
                TargetKind::Tool => ("tool", format!("call {server} TOOL")),
                TargetKind::Prompt => ("prompt", format!("prompt {server} NAME")),
            };
            Failure::usage(format!("missing {noun} name. Run `mcpvisor {usage}`."))
                .with_server(server)
        }
        Err(NoTarget::Ambiguous(readings)) => {
            let readings = readings.iter();
            let readings = readings.map(|(server, tool)| format!("\"{server} {tool}\""));
            let readings = readings.collect::<Vec<_>>().join(" or ");
            Failure::usage(format!(
                "ambiguous: could be {readings}. Separate server and tool with a space."
            ))
        }
        Err(NoTarget::NoServer(server)) => match exposed(config, words) {
            Some(target) if kind == TargetKind::Tool => return Ok(target),
            _ => fleet::unknown_server(config, server),
        },
    })
}

/// The target of an exposed tool name, in which the server's name may be altered. The server's list
/// tells which tool it is.
fn exposed<'w>(config: &'w Config, words: &'w [String]) -> Option<Target<'w>> {
    let (word, rest) = words.split_first()?;
    let mut servers = config.servers.iter().map(|server| &server.name);
    let server = servers.find(|server| may_expose(server, word))?;
    Some(Target {
        server: server.as_str(),
        tool: word,
        exposed: Some(word),
        rest,
    })
}

/// Every way to split a word into an existing server and a tool.
fn readings<'w>(word: &'w str, is_server: &impl Fn(&str) -> bool) -> Vec<(&'w str, &'w str)> {
    let mut readings = Vec::new();
    for separator in SEPARATORS {
        for (at, _) in word.match_indices(separator) {
            let (server, tool) = (&word[..at], &word[at + separator.len()..]);
            if is_server(server) && !tool.is_empty() {
                readings.push((server, tool));
            }
        }
    }
    readings
}

/// The server of a word that ends after its separator.
fn server_without_tool<'w>(word: &'w str, is_server: &impl Fn(&str) -> bool) -> Option<&'w str> {
    let mut servers = SEPARATORS
        .iter()
        .filter_map(|separator| word.strip_suffix(separator));
    servers.find(|server| is_server(server))
}

fn is_pair(word: &str) -> bool {
    word.contains('=')
}

/// The part before the first separator of a word that names no known server.
fn server_part(word: &str) -> &str {
    let ends = SEPARATORS
        .iter()
        .filter_map(|separator| word.find(separator));
    &word[..ends.min().unwrap_or(word.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[track_caller]
    fn means(text: &str, servers: &[&str], server: &str, tool: &str, rest: usize) {
        let words = words(text);
        let target = Target::parse(&words, |name| servers.contains(&name)).unwrap();
        assert_eq!(
            (target.server, target.tool, target.rest.len()),
            (server, tool, rest)
        );
    }

    #[test]
    fn every_separator_is_accepted() {
        for text in [
            "git search q=1",
            "git.search q=1",
            "git:search q=1",
            "git/search q=1",
            "git__search q=1",
        ] {
            means(text, &["git", "files"], "git", "search", 1);
        }
        means("git a.b", &["git"], "git", "a.b", 0);
        means("git.a.b", &["git"], "git", "a.b", 0);
        means("my.srv.tool", &["my.srv"], "my.srv", "tool", 0);
    }

    #[test]
    fn a_name_with_a_separator_is_a_server_when_a_tool_follows() {
        means("a.b c", &["a", "a.b"], "a.b", "c", 0);
        means("a.b k=v", &["a", "a.b"], "a", "b", 1);
    }

    #[test]
    fn words_without_a_target_give_the_reason() {
        let read = |text: &str, servers: &[&str]| {
            let words = words(text);
            let found = Target::parse(&words, |name| servers.contains(&name));
            format!("{:?}", found.unwrap_err())
        };
        assert_eq!(read("git k=v", &["git"]), r#"NoTool("git")"#);
        assert_eq!(read("git.", &["git"]), r#"NoTool("git")"#);
        assert_eq!(read("my.srv__", &["my.srv"]), r#"NoTool("my.srv")"#);
        assert_eq!(read("gti.search", &["git"]), r#"NoServer("gti")"#);
        assert!(read("a.b.c", &["a", "a.b"]).starts_with("Ambiguous"));
    }
}
