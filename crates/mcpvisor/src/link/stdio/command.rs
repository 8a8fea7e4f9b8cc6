//! How a server's process is started: its program, arguments, environment and directory.
//!
//! Starting it is left to [`super::child`].

#[cfg(feature = "config-files")]
pub(crate) mod parts;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::secret::{MIN_REDACTED_CHARS, Secret, Secrets, proxy_credentials, url_credentials};

/// Variables that every child gets, if the parent has them.
const INHERITED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TERM",
    "TMPDIR",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Variables whose names begin so are inherited too.
const INHERITED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Proxy settings, inherited in lower and in upper case.
const INHERITED_ANY_CASE: &[&str] = &["http_proxy", "https_proxy", "no_proxy", "all_proxy"];

/// The command line of a server that speaks on its stdin and stdout.
///
/// The child's environment is not the parent's: it has a short list of harmless variables (the
/// search path, home, locale, terminal, time zone, proxies, certificates), those named by
/// [`StdioCommand::inherit_env`], and those set by [`StdioCommand::env`].
///
/// The child leads a process group of its own, which ends with the connection. Should the host be killed,
/// then on Linux the child itself is killed with it, unless it gained privileges when it started (setuid
/// and the like); the rest of the group, and children on other systems, are not: they end if they end
/// when their stdin does. Out of reach at any time are a grandchild that leaves the group (`setsid`) and
/// what runs in a container that the child started.
///
/// A host must not reap children that are not its own, and must leave SIGPIPE ignored, as Rust's runtime
/// has it: a child that closes its stdin would end a host with the signal's default action. Needs a Unix
/// system; only Linux is tested.
///
/// Printing one shows neither arguments nor values, because they may be secrets. Values of variables
/// that its config names, and what [`StdioCommand::secret`] names, are also taken out of errors, of
/// logs, and of what the child says on its stderr.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioCommand {
    pub(super) program: OsString,
    pub(super) args: Vec<Secret<OsString>>,
    env: Vec<(OsString, Secret<OsString>)>,
    inherit: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    /// What is secret in the other parts.
    secrets: Vec<Secret<OsString>>,
}

impl StdioCommand {
    /// A command without arguments; a program without a `/` is looked for in the search path.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            inherit: Vec::new(),
            cwd: None,
            secrets: Vec::new(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(Secret::new(arg.into()));
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        let args = args.into_iter().map(|arg| Secret::new(arg.into()));
        self.args.extend(args);
        self
    }

    /// Sets a variable of the child's environment; the last value of a name counts.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), Secret::new(value.into())));
        self
    }

    /// Lets the child inherit one more variable of the parent's environment.
    #[must_use]
    pub fn inherit_env(mut self, name: impl Into<OsString>) -> Self {
        self.inherit.push(name.into());
        self
    }

    /// The directory that the child starts in; the parent's if it is not set.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// The folder that the program starts in, if one was named.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.cwd.as_deref()
    }

    /// Names a text that is secret wherever it stands: a token within an argument, a folder that
    /// nobody should know. It is shown as `***`.
    #[must_use]
    pub fn secret(mut self, text: impl Into<OsString>) -> Self {
        self.secrets.push(Secret::new(text.into()));
        self
    }

    /// The program, as it was given.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// What differs from another command, as a config names it.
    pub(crate) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let env = self.env != other.env || self.inherit != other.inherit;
        let differs = [
            (self.program != other.program, "command"),
            (self.args != other.args, "args"),
            (env || self.secrets != other.secrets, "env"),
            (self.cwd != other.cwd, "cwd"),
        ];
        let named = differs.into_iter();
        named
            .filter_map(|(differs, name)| differs.then_some(name))
            .collect()
    }

    /// The names of the variables that are set for the child.
    pub(super) fn variables(&self) -> impl Iterator<Item = &OsStr> {
        self.env.iter().map(|(name, _)| name.as_os_str())
    }

    /// The arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &OsStr> {
        self.args.iter().map(AsRef::as_ref)
    }

    /// The variables that are set for the child, with their values.
    pub(crate) fn set_variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let set = self.env.iter();
        set.map(|(name, value)| (name.as_os_str(), value.as_ref()))
    }

    /// What makes it this command and no other: the program and its arguments.
    pub(crate) fn identity(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.args.iter().map(AsRef::<OsStr>::as_ref);
        let parts = std::iter::once(self.program.as_os_str()).chain(args);
        parts.map(OsStr::as_encoded_bytes)
    }

    /// The whole environment of the child, given the parent's. A later value of a name wins.
    pub(super) fn environment(
        &self,
        parent: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<_> = parent.filter(|(name, _)| self.inherits(name)).collect();
        let set = self.env.iter();
        environment.extend(set.map(|(name, value)| (name.clone(), value.expose().clone())));
        environment
    }

    /// What must not be shown of the child: the values of its own variables, the credentials in them
    /// and in the proxies that it inherits, and what was named.
    pub(crate) fn secrets(&self, variable: impl Fn(&OsStr) -> Option<OsString>) -> Secrets {
        let mut credentials = proxy_credentials(&variable);
        let inherited: Vec<OsString> = self.inherit.iter().filter_map(|n| variable(n)).collect();
        let own = self.env.iter().map(|(_, value)| value.expose());
        for value in own.chain(&inherited) {
            credentials.extend(url_credentials(&value.to_string_lossy()));
        }
        let set = self.env.iter().map(|(_, value)| value.as_ref());
        let named = self.secrets.iter().map(AsRef::as_ref);
        let inherited = inherited.iter().map(OsString::as_os_str);
        let credentials = credentials.iter().map(OsStr::new);
        let all = set.chain(named).chain(inherited).chain(credentials);
        Secrets::new(all, MIN_REDACTED_CHARS)
    }

    /// A part of the command, or a path made of it, as it may be shown. However short, what was named
    /// as a secret is not: here it is known to be one.
    ///
    /// ```
    /// use mcpvisor::Transport;
    ///
    /// let command = Transport::stdio("/opt/k3y/server").secret("k3y");
    /// assert_eq!(command.shown("/opt/k3y/server"), "/opt/***/server");
    /// ```
    pub fn shown(&self, part: impl AsRef<OsStr>) -> String {
        let named = Secrets::new(self.secrets.iter().map(AsRef::as_ref), 1);
        named.redact(part.as_ref().to_string_lossy()).into_owned()
    }

    fn inherits(&self, name: &OsStr) -> bool {
        if self.inherit.iter().any(|inherited| inherited == name) {
            return true;
        }
        name.to_str().is_some_and(is_inherited)
    }
}

/// Whether every child gets this variable.
pub(crate) fn is_inherited(name: &str) -> bool {
    let in_lower_case = name.to_ascii_lowercase();
    let in_one_case = name == in_lower_case || name == name.to_ascii_uppercase();
    INHERITED.contains(&name)
        || INHERITED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || (in_one_case && INHERITED_ANY_CASE.contains(&in_lower_case.as_str()))
}

impl fmt::Debug for StdioCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("StdioCommand")
            .field("program", &self.shown(&self.program))
            .field("args", &self.args.len())
            .field("env", &names)
            .field("inherit", &self.inherit)
            .field("cwd", &self.cwd.as_ref().map(|cwd| self.shown(cwd)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(command: &StdioCommand, parent: &[(&str, &str)]) -> Vec<(String, String)> {
        command
            .environment(parent.iter().map(|(n, v)| (n.into(), v.into())))
            .into_iter()
            .map(|(n, v)| (n.into_string().unwrap(), v.into_string().unwrap()))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(n, v)| (n.to_string(), v.to_string()))
            .collect()
    }

    #[test]
    fn a_child_gets_the_short_list_and_what_is_named_and_nothing_else() {
        let command = StdioCommand::new("server")
            .inherit_env("GH_TOKEN")
            .env("MODE", "quiet")
            .env("LANG", "C");
        let parent = [
            ("PATH", "/bin"),
            ("LC_ALL", "de"),
            ("XDG_CACHE_HOME", "/c"),
            ("HTTPS_PROXY", "p"),
            ("no_proxy", "n"),
            ("Http_Proxy", "odd"),
            ("GH_TOKEN", "t"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("PATHOLOGY", "x"),
            ("LANG", "en"),
        ];
        let expected = [
            ("PATH", "/bin"),
            ("LC_ALL", "de"),
            ("XDG_CACHE_HOME", "/c"),
            ("HTTPS_PROXY", "p"),
            ("no_proxy", "n"),
            ("GH_TOKEN", "t"),
            ("LANG", "en"),
            ("MODE", "quiet"),
            ("LANG", "C"),
        ];
        assert_eq!(environment(&command, &parent), pairs(&expected));
    }

    #[test]
    fn printing_a_command_shows_no_secret() {
        let command = StdioCommand::new("/opt/canary-3/server")
            .args(["--token", "canary-1"])
            .env("TOKEN", "canary-2")
            .inherit_env("INHERITED")
            .cwd("/srv/me")
            .secret("canary-3")
            .secret("me");
        assert_eq!(
            format!("{command:?}"),
            r#"StdioCommand { program: "/opt/***/server", args: 2, env: ["TOKEN"], inherit: ["INHERITED"], cwd: Some("/srv/***") }"#
        );
    }

    #[test]
    fn the_secrets_of_a_command_are_its_variables_and_what_was_named() {
        let command = StdioCommand::new("server")
            .args(["--name", "argument"])
            .env("TOKEN", "canary-1")
            .env("DEBUG", "true")
            .inherit_env("INHERITED")
            .inherit_env("ABSENT")
            .secret("canary-3");
        let parent = |name: &OsStr| (name == "INHERITED").then(|| OsString::from("canary-2"));
        assert_eq!(
            command
                .secrets(parent)
                .redact("canary-1 canary-2 canary-3 argument true"),
            "*** *** *** argument true"
        );
    }
}
