//! Checks the documents: the tests they name exist, and their links resolve.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail as the test does"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with the files that `docs/invariants.md` names.
const ROOTS: [&str; 6] = [
    "tests/tests",
    "",
    "crates",
    "crates/mcpvisor/src",
    "crates/mcpvisor-core/src",
    "crates/mcpvisor-core/tests",
];

/// Every guarantee, by its id.
const PROMISES: [(char, u32); 11] = [
    ('O', 4),
    ('G', 4),
    ('B', 7),
    ('H', 4),
    ('S', 5),
    ('C', 8),
    ('K', 8),
    ('D', 5),
    ('I', 6),
    ('A', 4),
    ('W', 6),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The sections of `docs/invariants.md`: the id or title of each guarantee, and its tests.
fn promises() -> Vec<(String, Vec<String>)> {
    let text = read(&root().join("docs/invariants.md"));
    let mut promises: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            let id = title.split_once(". ").map_or(title, |(id, _)| id);
            promises.push((id.to_owned(), Vec::new()));
        } else if let Some(test) = line.strip_prefix("- `")
            && let Some((_, tests)) = promises.last_mut()
            && let Some((test, _)) = test.split_once('`')
        {
            tests.push(test.to_owned());
        }
    }
    promises
}

fn find(file: &str) -> Option<PathBuf> {
    let places = ROOTS.iter().map(|place| root().join(place).join(file));
    places.into_iter().find(|path| path.is_file())
}

#[test]
fn every_promise_names_tests_and_they_exist() {
    let promises = promises();
    let ids: BTreeSet<String> = promises.iter().map(|(id, _)| id.clone()).collect();
    let expected = PROMISES
        .iter()
        .flat_map(|(letter, last)| (1..=*last).map(move |number| format!("{letter}{number}")));
    let missing: Vec<String> = expected.filter(|id| !ids.contains(id)).collect();
    assert_eq!(missing, [""; 0], "promises without a section");
    let mut wrong = Vec::new();
    for (id, tests) in &promises {
        if tests.is_empty() {
            wrong.push(format!("{id} names no test"));
        }
        // `fuzz.rs` exists beside each parser.
        for test in tests.iter().filter(|test| *test != "fuzz.rs") {
            let (file, name) = match test.split_once("::") {
                Some((file, name)) => (file, Some(name)),
                None => (test.as_str(), None),
            };
            let Some(path) = find(file) else {
                wrong.push(format!("{id}: there is no {file}"));
                continue;
            };
            // A name with a trailing ellipsis stands for several tests.
            if let Some(name) = name
                && !read(&path).contains(&match name.strip_suffix('…') {
                    Some(start) => format!("fn {start}"),
                    None => format!("fn {name}("),
                })
            {
                wrong.push(format!("{id}: {file} has no {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let text = read(&root().join("docs/architecture.md"));
    let named = text.split('`').skip(1).step_by(2);
    let missing: Vec<&str> = named
        .filter(|name| name.ends_with(".rs") && *name != "fuzz.rs")
        .filter(|name| find(name).is_none())
        .collect();
    assert_eq!(missing, [""; 0], "files that docs/architecture.md names");
}

fn documents() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md")];
    for folder in ["docs", "docs/adr"] {
        let entries = fs::read_dir(root().join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        found.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    found
}

/// The targets of Markdown links, without the fragment.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        Some(target.split('#').next().unwrap_or_default())
    })
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = read(&document);
        for link in links(&text).filter(|link| !link.is_empty() && !link.contains("://")) {
            if !document.parent().unwrap().join(link).exists() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_library_shows_the_readme_of_the_project() {
    // A package cannot contain files outside of it, so it has a copy. The links of the copy lead to
    // the repository, because the package registry shows the file too.
    let ours = elsewhere(&read(&root().join("README.md")));
    let path = root().join("crates/mcpvisor/README.md");
    if std::env::var("MCPVISOR_RENEW").is_ok_and(|value| value == "1") {
        fs::write(&path, &ours).unwrap();
    }
    assert!(
        ours == read(&path),
        "renew it: MCPVISOR_RENEW=1 cargo test --workspace --test docs"
    );
    let stays = links(&ours).find(|link| !link.contains("://"));
    assert_eq!(stays, None, "it leads nowhere on docs.rs");
}

/// A text of the root folder as a package registry shows it: links to files lead to the repository.
fn elsewhere(text: &str) -> String {
    const REPOSITORY: &str = "https://github.com/mcpvisor/mcpvisor";
    let mut parts = text.split("](");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let target = part.split(')').next().unwrap_or_default();
        let is_image = shown
            .rfind('[')
            .is_some_and(|at| shown[..at].ends_with('!'));
        shown.push_str("](");
        if !target.contains("://") && !target.starts_with('#') {
            let kind = match is_image {
                true => "raw",
                false if target.ends_with('/') => "tree",
                false => "blob",
            };
            shown.push_str(&format!("{REPOSITORY}/{kind}/main/"));
        }
        shown.push_str(part);
    }
    shown
}

#[test]
fn every_package_holds_the_licences() {
    for package in [
        "mcpvisor",
        "mcpvisor-auth",
        "mcpvisor-core",
        "mcpvisor-files",
        "mcpvisor-cli",
        "mcpvisor-testkit",
    ] {
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let copy = root().join("crates").join(package).join(licence);
            assert_eq!(read(&copy), read(&root().join(licence)), "{package}");
        }
    }
}
