//! Every file operation of the library and of the credential store has a timeout: it is in a file
//! that sets one, or in a function that such a file calls. `mcpvisor-files` has the timeouts.

#![allow(
    clippy::unwrap_used,
    reason = "the helpers of a test fail as the test does"
)]

use std::path::{Path, PathBuf};

/// Calls that access the file system.
const OPERATIONS: [&str; 11] = [
    "fs::read",
    "fs::write",
    "fs::metadata",
    "fs::remove",
    "fs::rename",
    "File::open",
    "File::options",
    "metadata()",
    "canonicalize()",
    ".is_file()",
    ".exists()",
];

/// The files that may access it, and what bounds each.
const BOUNDED: [(&str, &str); 7] = [
    (
        "config/source.rs",
        "CONFIG_OPS; the writer of a pipe is waited for",
    ),
    ("config/lookup.rs", "CONFIG_OPS"),
    ("state/trust.rs", "TrustStore::within"),
    ("fleet/watch.rs", "the timeout of a watched config"),
    (
        "link/stdio/resolve.rs",
        "the thread that starts children, and LOCATE_OPS",
    ),
    ("link/stdio/display.rs", "LOCATE_OPS"),
    (
        "saved_content.rs",
        "the program: a helper that blocks its thread, and says so",
    ),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_operation_is_without_a_bound() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for package in ["mcpvisor", "mcpvisor-auth"] {
        let root = crates.join(package).join("src");
        let mut found = Vec::new();
        sources(&root, &mut found);
        files.extend(found.into_iter().map(|file| {
            let name = file.strip_prefix(&root).unwrap();
            (name.to_string_lossy().into_owned(), file.clone())
        }));
    }
    let mut unbounded = Vec::new();
    for (name, file) in files {
        let is_test = name.contains("test") || name.contains("fuzz");
        if is_test || BOUNDED.iter().any(|(bounded, _)| *bounded == name) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let touches = OPERATIONS.iter().any(|it| line.contains(it));
            if touches && !line.trim_start().starts_with("//") {
                unbounded.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_eq!(unbounded, [""; 0]);
}
