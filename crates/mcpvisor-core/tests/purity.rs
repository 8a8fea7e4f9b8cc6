//! The crate stays pure: no dependency performs effects.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may fail the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const FORBIDDEN: [&str; 3] = ["tokio", "ractor", "rmcp"];

/// The dependencies of each package in the lock file. Two versions of a package are merged.
fn locked_packages() -> BTreeMap<String, BTreeSet<String>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lock_file = crate_dir
        .ancestors()
        .map(|dir| dir.join("Cargo.lock"))
        .find(|path| path.exists())
        .expect("the workspace has a Cargo.lock");
    let lock = fs::read_to_string(lock_file).unwrap();
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = package
            .lines()
            .find_map(|line| line.strip_prefix("name = "))
            .expect("a package has a name");
        let dependencies = package
            .lines()
            .filter_map(|line| line.strip_prefix(" \""))
            .filter_map(|line| line.split(['"', ' ']).next());
        packages
            .entry(name.trim_matches('"').to_owned())
            .or_default()
            .extend(dependencies.map(str::to_owned));
    }
    packages
}

/// The names in every dependency table of the manifest except dev-dependencies.
fn direct_dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut listing = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.trim_end_matches(']');
            let counts = table.contains("dependencies") && !table.contains("dev-dependencies");
            listing = counts && table.ends_with("dependencies");
            if counts && !listing {
                names.extend(table.rsplit('.').next().map(str::to_owned));
            }
        } else if listing && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
        // The package name of a renamed dependency.
        if let Some((_, renamed)) = line.split_once("package = \"") {
            names.extend(renamed.split('"').next().map(str::to_owned));
        }
    }
    names
}

fn closure(
    packages: &BTreeMap<String, BTreeSet<String>>,
    roots: BTreeSet<String>,
) -> BTreeSet<String> {
    let mut todo: Vec<String> = roots.into_iter().collect();
    let mut reached = BTreeSet::new();
    while let Some(name) = todo.pop() {
        if let Some(dependencies) = packages.get(&name) {
            todo.extend(dependencies.difference(&reached).cloned());
        }
        reached.insert(name);
    }
    reached
}

#[test]
fn no_runtime_no_actor_library_and_no_protocol_library_is_among_the_dependencies() {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let direct = direct_dependencies(&manifest);
    let reached = closure(&locked_packages(), direct.clone());
    assert!(
        reached.len() > direct.len() && reached.contains("serde_derive"),
        "the walk saw no indirect dependency: {reached:?}"
    );
    for name in FORBIDDEN {
        assert!(!reached.contains(name), "{name} is in {reached:?}");
    }
}

#[test]
fn the_walk_would_see_a_forbidden_dependency() {
    let packages = locked_packages();
    let library = closure(&packages, BTreeSet::from(["mcpvisor".to_owned()]));
    for name in FORBIDDEN {
        assert!(library.contains(name), "{name} is not in {library:?}");
    }
    let manifest = "[dependencies]\na.workspace = true\nb = { package = \"c\", version = \"1\" }\n\
                    [dependencies.d]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\ne = \"1\"\n\
                    [dev-dependencies]\nf = \"1\"\n[lints]\nworkspace = true\n";
    let direct = ["a", "b", "c", "d", "e"].map(str::to_owned);
    assert_eq!(direct_dependencies(manifest), BTreeSet::from(direct));
}
