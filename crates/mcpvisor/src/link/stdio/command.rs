//! The command of a server: program, arguments, environment and working directory.
//!
//! [`super::child`] starts it.

#[cfg(feature = "config-files")]
pub(crate) mod parts;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::link::CLIENT_PLACEHOLDER;
use crate::secret::{MIN_REDACTED_CHARS, Secret, Secrets, proxy_credentials, url_credentials};

/// Variables that every child inherits.
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

/// Prefixes of further inherited variables.
const INHERITED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Proxy settings, inherited in lower and in upper case.
const INHERITED_ANY_CASE: &[&str] = &["http_proxy", "https_proxy", "no_proxy", "all_proxy"];

/// The command of a server that communicates over its stdin and stdout.
///
/// The child does not inherit the whole environment, but only a short list of harmless variables
/// (search path, home, locale, terminal, time zone, proxies, certificates) and those named by
/// [`StdioCommand::inherit_env`]. [`StdioCommand::env`] sets further ones.
///
/// `${MCPVISOR_CLIENT}` in an argument, in the value of a variable or in the working directory is the
/// name of the client that the connection belongs to
/// ([`ServerConfig::scope`](crate::ServerConfig::scope)), percent-encoded where it needs to be;
/// `default` for calls without a client.
///
/// The child leads its own process group, which is killed when the connection ends. If the host is
/// killed, Linux kills the child as well, unless the child gained privileges when it started
/// (setuid and the like). The rest of the group, and children on other systems, then end only if
/// they exit on the end of their stdin. A grandchild that leaves the group (`setsid`) and processes
/// in a container that the child started are never killed.
///
/// The host must not reap children that it did not start, and must leave SIGPIPE ignored, as Rust's
/// runtime does: otherwise a child that closes its stdin would kill the host. Requires a Unix
/// system; only Linux is tested.
///
/// `Debug` and `Display` show neither arguments nor values, because they may be secrets. The values
/// of [`StdioCommand::env`] and [`StdioCommand::inherit_env`], and texts marked with
/// [`StdioCommand::secret`], are also redacted in errors, logs and the child's stderr.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioCommand {
    pub(super) program: OsString,
    pub(super) args: Vec<Secret<OsString>>,
    env: Vec<(OsString, Secret<OsString>)>,
    inherit: Vec<OsString>,
    pub(super) cwd: Option<PathBuf>,
    /// Secret texts within the other parts.
    secrets: Vec<Secret<OsString>>,
}

/// Replaces the placeholder in a text that is valid UTF-8.
fn replace_placeholder(text: &OsStr, name: &str) -> OsString {
    match text.to_str() {
        Some(text) if text.contains(CLIENT_PLACEHOLDER) => {
            text.replace(CLIENT_PLACEHOLDER, name).into()
        }
        _ => text.to_owned(),
    }
}

/// A name of one file that is different for different names: what may have a meaning in a path or a
/// shell is percent-encoded.
fn as_file_name(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => encoded.push(char::from(byte)),
            b'-' | b'.' if at > 0 => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    match encoded.as_str() {
        // The name of connections without a client.
        "" | "default" => format!("%{encoded}"),
        _ => encoded,
    }
}

impl StdioCommand {
    /// A command without arguments. A program without a `/` is searched in `PATH`.
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

    /// Sets an environment variable of the child. The last value of a name counts.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), Secret::new(value.into())));
        self
    }

    /// Lets the child inherit an environment variable.
    #[must_use]
    pub fn inherit_env(mut self, name: impl Into<OsString>) -> Self {
        self.inherit.push(name.into());
        self
    }

    /// Sets the working directory of the child. The default is that of the host.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// The command for the connection of one client: its name in place of
    /// [`CLIENT_PLACEHOLDER`].
    pub(crate) fn for_client(&self, client: Option<&str>) -> Self {
        let name = client.map_or_else(|| "default".to_owned(), as_file_name);
        let fill = |text: &OsStr| replace_placeholder(text, &name);
        let fill_secret = |text: &Secret<OsString>| Secret::new(fill(text.expose()));
        Self {
            args: self.args.iter().map(fill_secret).collect(),
            env: self
                .env
                .iter()
                .map(|(key, value)| (key.clone(), fill_secret(value)))
                .collect(),
            cwd: self.cwd.as_ref().map(|cwd| fill(cwd.as_os_str()).into()),
            ..self.clone()
        }
    }

    /// The working directory, if one is set.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.cwd.as_deref()
    }

    /// Marks a text as secret wherever it occurs, for example a token within an argument. It is
    /// shown as `***`.
    #[must_use]
    pub fn secret(mut self, text: impl Into<OsString>) -> Self {
        self.secrets.push(Secret::new(text.into()));
        self
    }

    /// The program, as passed to [`StdioCommand::new`].
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// The config keys whose values differ from those of another command.
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

    /// The arguments.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &OsStr> {
        self.args.iter().map(AsRef::as_ref)
    }

    /// The names and values of the variables set by [`StdioCommand::env`].
    pub(crate) fn set_variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let set = self.env.iter();
        set.map(|(name, value)| (name.as_os_str(), value.as_ref()))
    }

    /// The program and its arguments, which identify the command.
    pub(crate) fn identity(&self) -> impl Iterator<Item = &[u8]> {
        let args = self.args.iter().map(AsRef::<OsStr>::as_ref);
        let parts = std::iter::once(self.program.as_os_str()).chain(args);
        parts.map(OsStr::as_encoded_bytes)
    }

    /// The complete environment of the child. The last value of a name counts.
    pub(super) fn environment(
        &self,
        parent: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let mut environment: Vec<_> = parent.filter(|(name, _)| self.inherits(name)).collect();
        let set = self.env.iter();
        environment.extend(set.map(|(name, value)| (name.clone(), value.expose().clone())));
        environment
    }

    /// Everything to redact: the values of its variables, credentials in them and in inherited
    /// proxy variables, and texts marked as secret.
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

    /// Redacts a part of the command, or a path made from it. Secrets of any length are replaced,
    /// because the text is known to contain them.
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

/// Whether every child inherits this variable.
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
    fn a_child_inherits_only_the_listed_and_the_named_variables() {
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
    fn the_secrets_of_a_command_are_its_variables_and_the_marked_texts() {
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

    #[test]
    fn the_name_of_a_client_is_one_part_of_a_path_and_never_that_of_another() {
        let command = StdioCommand::new("server")
            .arg("--file=/data/${MCPVISOR_CLIENT}.json")
            .env("MEMORY", "${MCPVISOR_CLIENT}/${MCPVISOR_CLIENT}")
            .env("OTHER", "${OTHER}")
            .cwd("/home/${MCPVISOR_CLIENT}");
        let filled = command.for_client(Some("agent 1/../x"));
        let name = "agent%201%2F..%2Fx";
        let args: Vec<&OsStr> = filled.arguments().collect();
        assert_eq!(args, [&*format!("--file=/data/{name}.json")]);
        let variables: Vec<_> = filled.set_variables().map(|(_, value)| value).collect();
        assert_eq!(variables, [&*format!("{name}/{name}"), "${OTHER}"]);
        assert_eq!(filled.cwd, Some(format!("/home/{name}").into()));
        let named = |client| {
            let filled = command.for_client(client);
            filled.cwd.unwrap().to_string_lossy().into_owned()
        };
        let names = [
            None,
            Some("default"),
            Some(""),
            Some("."),
            Some(".."),
            Some("%"),
            Some("%default"),
            Some("a/b"),
            Some("a%2Fb"),
            Some("-v"),
            Some("ä"),
        ];
        let all: std::collections::BTreeSet<String> = names.into_iter().map(named).collect();
        assert_eq!(all.len(), names.len(), "{all:?}");
        assert!(
            all.iter()
                .all(|it| it.matches('/').count() == 2 && !it.ends_with('.'))
        );
    }
}
