//! What to type next: commands, with the `--config` of this one, and names.

use std::path::Path;
use std::sync::OnceLock;

use mcpvisor::config::nearest_name;

/// The value of `--config`, quoted for a shell.
static CONFIG: OnceLock<String> = OnceLock::new();

/// Remembers the config of the command line.
pub(crate) fn remember_config(config: Option<&Path>) {
    if let Some(config) = config {
        // There is one command line per process, so only the first call counts.
        let _ = CONFIG.set(shell_word(&config.to_string_lossy()));
    }
}

/// A command that the user can paste. Names come from configs and servers, so each is quoted as one
/// word.
pub(crate) fn suggest_command(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|text| shell_word(text)).collect();
    let command = format!("mcpvisor {}", words.join(" "));
    match CONFIG.get() {
        Some(config) => format!("{command} --config {config}"),
        None => command,
    }
}

/// A hint at the known name that is most like an unknown one.
pub(crate) fn suggest_name<'a>(
    wanted: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<String> {
    nearest_name(wanted, known).map(|near| format!(" (did you mean {near:?}?)"))
}

/// Quotes a text as one word of a shell.
fn shell_word(text: &str) -> String {
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
        assert_eq!(shell_word("../mcp.json"), "../mcp.json");
        assert_eq!(shell_word("my mcp.json"), "'my mcp.json'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(suggest_command(&["tools", "shop"]), "mcpvisor tools shop");
        assert_eq!(
            suggest_command(&["approve", "shop", "x; rm -r ~"]),
            "mcpvisor approve shop 'x; rm -r ~'"
        );
    }
}
