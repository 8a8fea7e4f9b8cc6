//! What a person should do about a failure.

use std::fmt;

use serde::{Serialize, Serializer};

/// What a person should do about a failure.
///
/// [`fmt::Display`] is a plain wording for embedding programs. A front end with commands of its own
/// matches the variants, and uses [`Action::instruction`] for the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Install the command, or correct it in the server's entry.
    InstallCommand {
        /// `PATH` was searched, so a full path helps too.
        searched_path: bool,
    },
    /// Create the working directory, or correct `cwd`.
    CreateWorkingDirectory,
    /// Install the interpreter of the script, or correct its first line.
    InstallInterpreter,
    /// Make the command executable, or correct it.
    MakeExecutable,
    /// Use a build for this system, or start the script with a `#!` line.
    UseNativeBuild,
    /// Correct these keys of the server's entry.
    FixKeys(String),
    /// Correct the server's entry, at this place of the config if it is known.
    FixEntry(Option<String>),
    /// Set this environment variable.
    SetVariable(String),
    /// Store the token in an environment variable, and name it as `bearerTokenEnvVar`.
    NameTokenVariable,
    /// Configure valid credentials.
    Authorize,
    /// Log in. The server connects by itself after that.
    Login {
        /// The scopes that the login has to request.
        scopes: Vec<String>,
    },
    /// Remove `protocol` from the server's entry, or set a version that both sides support.
    ChangeProtocol,
    /// Update the server to a supported protocol version.
    UpdateServer,
    /// Fix the server. It is probed at intervals, and on calls.
    FixServer,
    /// Enable the server.
    Enable,
    /// Add the server again.
    AddServer,
    /// Try again.
    Retry,
    /// Try again later, or reconnect.
    RetryLater,
    /// Review the held-back tool, and approve it.
    ApproveTool,
    /// Repair the file of approved tools: which one, what is wrong, and what to do.
    RepairApprovals(String),
    /// Give each client a connection of its own: calls of several clients share one, so requests of the
    /// server are declined.
    SeparateClients,
    /// Other words, for example those of a front end.
    Custom(String),
}

impl Action {
    /// The instruction alone, without the reconnect that follows it.
    pub fn instruction(&self) -> String {
        self.parts().0
    }

    /// The instruction, and whether the server stays down until it is reconnected.
    fn parts(&self) -> (String, bool) {
        let (instruction, reconnect) = match self {
            Self::InstallCommand {
                searched_path: true,
            } => ("install it, or set its full path as \"command\"", true),
            Self::InstallCommand {
                searched_path: false,
            } => ("install it, or correct the path in \"command\"", true),
            Self::CreateWorkingDirectory => ("create it, or correct \"cwd\"", true),
            Self::InstallInterpreter => (
                "install the interpreter, or correct the first line of the script",
                true,
            ),
            Self::MakeExecutable => (
                "make it executable with \"chmod +x\", or correct \"command\"",
                true,
            ),
            Self::UseNativeBuild => (
                "use a build for this system, or start the script with a \"#!\" line",
                true,
            ),
            Self::FixKeys(keys) => return (format!("correct {keys} of the server's entry"), true),
            Self::FixEntry(Some(place)) => return (format!("fix it at {place}"), false),
            Self::FixEntry(None) => ("fix the server's entry", false),
            Self::SetVariable(name) => return (format!("set {name} in the environment"), true),
            Self::NameTokenVariable => (
                "store the token in a variable, and set \"bearerTokenEnvVar\" to its name",
                true,
            ),
            Self::Authorize => (
                "set a valid token in \"headers\" or \"bearerTokenEnvVar\"",
                true,
            ),
            Self::Login { scopes } if scopes.is_empty() => ("log in to it", false),
            Self::Login { scopes } => {
                return (format!("log in to it (scopes {})", scopes.join(" ")), false);
            }
            Self::ChangeProtocol => (
                "remove \"protocol\" from its entry, or set a version that both sides support",
                true,
            ),
            Self::UpdateServer => ("update the server to one of these versions", true),
            Self::FixServer => ("fix the server, then call again or reconnect it", false),
            Self::Enable => ("enable it first", false),
            Self::AddServer => ("add it again and get a new handle", false),
            Self::Retry => ("try again", false),
            Self::RetryLater => ("try again later, or reconnect it", false),
            Self::ApproveTool => ("review and approve it", false),
            Self::SeparateClients => (
                "set \"scope\": \"client\" in its entry, so that the server's requests reach their clients",
                false,
            ),
            Self::RepairApprovals(text) | Self::Custom(text) => (text.as_str(), false),
        };
        (instruction.to_owned(), reconnect)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instruction, reconnect) = self.parts();
        let then = if reconnect { ", then reconnect it" } else { "" };
        write!(f, "{instruction}{then}")
    }
}

/// As its text.
impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permanent_failure_ends_with_the_reconnect_that_an_embedding_program_needs() {
        assert_eq!(
            Action::SetVariable("TOKEN".to_owned()).to_string(),
            "set TOKEN in the environment, then reconnect it"
        );
        assert_eq!(Action::Enable.to_string(), "enable it first");
        let scopes = vec!["read".to_owned(), "write".to_owned()];
        assert_eq!(
            Action::Login { scopes }.to_string(),
            "log in to it (scopes read write)"
        );
        let scopes = Vec::new();
        assert_eq!(Action::Login { scopes }.to_string(), "log in to it");
        let place = Some("mcp.json:1:2".to_owned());
        assert_eq!(
            Action::FixEntry(place).to_string(),
            "fix it at mcp.json:1:2"
        );
    }
}
