//! What to do about a failure, in terms of the command line.

use mcpvisor::{Action, ServerStatus, StateName};

use super::suggest_command;

/// What to do about a server after a command that ends: it is not probed, and no call wakes it, so
/// there is no action for a server whose one attempt failed.
pub(crate) fn after_command(status: &ServerStatus) -> Option<String> {
    match status.state {
        StateName::Disconnected => None,
        _ => status_action(status),
    }
}

/// What to do about a server, as a sentence.
pub(crate) fn status_action(status: &ServerStatus) -> Option<String> {
    let action = status.action.as_ref();
    action.map(|action| action_text(status.name.as_str(), action))
}

/// What to do about this server, as a sentence.
pub(crate) fn action_text(server: &str, action: &Action) -> String {
    let instruction = match action {
        Action::Enable => "set \"enabled\": true in its entry, or remove \"disabled\"".to_owned(),
        Action::Authorize => "set \"headers\" or \"bearerTokenEnvVar\"".to_owned(),
        Action::Login { scopes } => {
            let scopes = scopes.iter().flat_map(|scope| ["--scope", scope]);
            let words: Vec<&str> = ["login", server].into_iter().chain(scopes).collect();
            let login = suggest_command(&words);
            format!("run `{login}`, or set \"headers\" or \"bearerTokenEnvVar\"")
        }
        Action::FixServer => "fix the server".to_owned(),
        Action::Retry | Action::RetryLater => "try again".to_owned(),
        other => other.instruction(),
    };
    sentence(&instruction)
}

/// A status as JSON shows it: with the actions in terms of the command line.
pub(crate) fn with_action_text(mut status: ServerStatus, action: Option<String>) -> ServerStatus {
    status.action = action.map(Action::Custom);
    if let Some(unsaved) = &mut status.unsaved_login {
        unsaved.action = Action::Custom(action_text(status.name.as_str(), &unsaved.action));
    }
    status
}

/// A fragment as a sentence.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    let text: String = first.into_iter().chain(chars).collect();
    match text.ends_with(['.', '?', '`']) {
        true => text,
        false => format!("{text}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_a_sentence_without_the_reconnect_of_an_embedding_program() {
        let set = Action::SetVariable("TOKEN".to_owned());
        assert_eq!(action_text("shop", &set), "Set TOKEN in the environment.");
        assert_eq!(
            action_text("shop", &Action::Enable),
            "Set \"enabled\": true in its entry, or remove \"disabled\"."
        );
    }

    #[test]
    fn a_login_is_a_command_with_the_missing_scopes() {
        let scopes = Vec::new();
        assert_eq!(
            action_text("shop", &Action::Login { scopes }),
            "Run `mcpvisor login shop`, or set \"headers\" or \"bearerTokenEnvVar\"."
        );
        let scopes = vec!["read".to_owned(), "a;b".to_owned()];
        assert_eq!(
            action_text("shop", &Action::Login { scopes }),
            "Run `mcpvisor login shop --scope read --scope 'a;b'`, or set \"headers\" or \
             \"bearerTokenEnvVar\"."
        );
    }
}
