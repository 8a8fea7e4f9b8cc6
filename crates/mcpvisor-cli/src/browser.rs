//! Opens URLs in the user's browser.

use std::process::{Command, Stdio};

/// Opens a web address in the browser, without a shell. Returns whether a browser was started; it
/// outlives this process.
pub(crate) fn open(url: &str) -> bool {
    if !is_web_address(url) {
        return false;
    }
    let program = match std::env::var_os("BROWSER").filter(|browser| !browser.is_empty()) {
        Some(browser) => browser,
        None if cfg!(target_os = "macos") => "open".into(),
        None => "xdg-open".into(),
    };
    let mut command = Command::new(program);
    command
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Ctrl-C in the terminal must not end the browser.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    match command.spawn() {
        // Reap the child when the browser exits.
        Ok(mut child) => {
            std::thread::spawn(move || child.wait());
            true
        }
        Err(_) => false,
    }
}

fn is_web_address(url: &str) -> bool {
    let web = ["https://", "http://"];
    let plain = |c: char| c.is_ascii_graphic();
    web.iter().any(|scheme| url.starts_with(scheme)) && url.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_opened() {
        assert!(is_web_address("https://example.com/a?b=c"));
        assert!(is_web_address("http://127.0.0.1:8080/"));
        for other in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "--version",
            "https://example.com/ x",
        ] {
            assert!(!is_web_address(other), "{other}");
        }
    }
}
