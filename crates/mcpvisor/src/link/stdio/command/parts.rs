//! The unredacted parts of a command, for the config writer, which redacts them itself.

use std::borrow::Cow;
use std::ffi::OsStr;

use super::StdioCommand;

/// The parts of a [`StdioCommand`], including secrets.
pub(crate) struct CommandParts<'c> {
    pub(crate) program: Cow<'c, str>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) inherit: Vec<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) secrets: Vec<String>,
}

impl StdioCommand {
    pub(crate) fn parts(&self) -> CommandParts<'_> {
        let text = |part: &OsStr| part.to_string_lossy().into_owned();
        let env = self.env.iter();
        let secrets = self.secrets.iter();
        CommandParts {
            program: self.program.to_string_lossy(),
            args: self.args.iter().map(|arg| text(arg.expose())).collect(),
            env: env
                .map(|(name, value)| (text(name), text(value.expose())))
                .collect(),
            inherit: self.inherit.iter().map(|name| text(name)).collect(),
            cwd: self.cwd.as_ref().map(|cwd| text(cwd.as_os_str())),
            secrets: secrets.map(|secret| text(secret.expose())).collect(),
        }
    }
}
