//! Commands to type next, as they work: with the config that this one was given.

use std::path::Path;
use std::sync::OnceLock;

/// What `--config` said, in the words of a shell.
static CONFIG: OnceLock<String> = OnceLock::new();

/// Remembers which config was named, once per process.
pub(crate) fn remember_config(config: Option<&Path>) {
    if let Some(config) = config {
        // Whatever it was, the first one counts: there is one command line.
        let _ = CONFIG.set(word(&config.to_string_lossy()));
    }
}

/// A command of ours, as a person can type it. Names come from configs and servers, so each is one word
/// of the shell, whatever it contains.
pub(crate) fn suggest_command(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|text| word(text)).collect();
    let command = format!("mcpvisor {}", words.join(" "));
    match CONFIG.get() {
        Some(config) => format!("{command} --config {config}"),
        None => command,
    }
}

/// A text as one word of a shell.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:@%[]".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_name_are_one_word_of_the_shell_each() {
        assert_eq!(word("../mcp.json"), "../mcp.json");
        assert_eq!(word("my mcp.json"), "'my mcp.json'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(suggest_command(&["tools", "shop"]), "mcpvisor tools shop");
        assert_eq!(
            suggest_command(&["approve", "shop", "x; rm -r ~"]),
            "mcpvisor approve shop 'x; rm -r ~'"
        );
    }
}
