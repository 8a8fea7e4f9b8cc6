//! Which server and tool the words of `call` mean.
//!
//! People write `srv tool`, `srv.tool`, `srv:tool`, `srv/tool` and `srv__tool`; all are accepted
//! where only one server can be meant.

/// What may stand between server and tool in one word.
const SEPARATORS: [&str; 4] = ["__", ".", ":", "/"];

/// One tool of one server, and the words that follow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'w> {
    pub(crate) server: &'w str,
    pub(crate) tool: &'w str,
    /// The one word that it was written as, which may be the tool's exposed name.
    pub(crate) exposed: Option<&'w str>,
    pub(crate) rest: &'w [String],
}

/// Why the words name no tool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoTarget<'w> {
    /// The server is there, the tool is not.
    NoTool(&'w str),
    /// Several servers may be meant.
    Ambiguous(Vec<(&'w str, &'w str)>),
    /// No server of this name is there.
    NoServer(&'w str),
}

impl<'w> Target<'w> {
    /// Reads the words, given which names are servers.
    pub(crate) fn read(
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
            (_, []) => Err(match unfinished(first, &is_server) {
                Some(server) => NoTarget::NoTool(server),
                None => NoTarget::NoServer(server_part(first)),
            }),
            (_, _) => Err(NoTarget::Ambiguous(joined)),
        }
    }
}

/// Every way to split one word into a server that exists and a tool.
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

/// The server of a word that ends before the tool begins.
fn unfinished<'w>(word: &'w str, is_server: &impl Fn(&str) -> bool) -> Option<&'w str> {
    let mut servers = SEPARATORS
        .iter()
        .filter_map(|separator| word.strip_suffix(separator));
    servers.find(|server| is_server(server))
}

fn is_pair(word: &str) -> bool {
    word.contains('=')
}

/// What was probably meant as the server in a word that names none.
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
        let target = Target::read(&words, |name| servers.contains(&name)).unwrap();
        assert_eq!(
            (target.server, target.tool, target.rest.len()),
            (server, tool, rest)
        );
    }

    #[test]
    fn all_habits_are_understood() {
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
    fn what_cannot_be_understood_says_why() {
        let read = |text: &str, servers: &[&str]| {
            let words = words(text);
            let found = Target::read(&words, |name| servers.contains(&name));
            format!("{:?}", found.unwrap_err())
        };
        assert_eq!(read("git k=v", &["git"]), r#"NoTool("git")"#);
        assert_eq!(read("git.", &["git"]), r#"NoTool("git")"#);
        assert_eq!(read("my.srv__", &["my.srv"]), r#"NoTool("my.srv")"#);
        assert_eq!(read("gti.search", &["git"]), r#"NoServer("gti")"#);
        assert!(read("a.b.c", &["a", "a.b"]).starts_with("Ambiguous"));
    }
}
