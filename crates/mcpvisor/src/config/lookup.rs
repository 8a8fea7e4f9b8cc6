//! Finds the config when none is given.
//!
//! A config in the working folder may come from a cloned repository, so its commands must not run
//! before a person trusts it: see [`super::TrustStore`].

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::file::ConfigError;
use super::source::run_on;
use super::{Config, ConfigSource};

/// File names in the working folder, in order of precedence.
const IN_WORKING_FOLDER: [&str; 3] = ["mcpvisor.json", "mcpvisor.toml", ".mcp.json"];

/// File names in the user's config folder, in order of precedence.
const IN_USER_FOLDER: [&str; 2] = ["mcpvisor.json", "mcpvisor.toml"];

/// The name of our folder within the user's folders.
const OUR_FOLDER: &str = "mcpvisor";

/// The kind of folder in which a config was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigFolder {
    /// The working folder, whose files may be untrusted.
    Working,
    /// The user's own config folder.
    User,
}

/// A candidate for the config file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundConfig {
    /// The file.
    pub path: PathBuf,
    /// The kind of folder it is in.
    pub folder: ConfigFolder,
}

impl FoundConfig {
    /// Whether a person must trust it before its commands may run.
    pub fn needs_trust(&self) -> bool {
        match self.folder {
            ConfigFolder::Working => true,
            ConfigFolder::User => false,
        }
    }

    /// Whether the path exists, even as a dangling link: an unreadable config is an error, and must
    /// not be skipped in favour of another.
    pub fn exists(&self) -> bool {
        let looked = run_on(&self.path, |path| path.symlink_metadata());
        looked.map_or_else(|it| it.kind() == io::ErrorKind::TimedOut, |_| true)
    }

    /// Reads the file. A pipe or a device is an error: it has to be given explicitly.
    pub fn read(&self) -> Result<ConfigSource, ConfigError> {
        let failed = ConfigError::reading(&self.path);
        let there = run_on(&self.path, |path| path.metadata());
        if !there.map_err(&failed)?.is_file() {
            let problem = "not a file; remove it, or name another config";
            return Err(failed(io::Error::other(problem)));
        }
        ConfigSource::read(&self.path)
    }
}

/// The user's folders, by the XDG base directory specification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserFolders {
    /// The config folder: `$XDG_CONFIG_HOME/mcpvisor`, or `~/.config/mcpvisor`.
    pub config: Option<PathBuf>,
    /// The state folder: `$XDG_STATE_HOME/mcpvisor`, or `~/.local/state/mcpvisor`.
    pub state: Option<PathBuf>,
}

impl UserFolders {
    /// The folders by the environment of this process.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    /// The folders by these variables. A relative path is ignored, as the XDG specification
    /// requires.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name| {
            let path = variable(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let folder = |own, within_home| {
            let base = absolute(own).or_else(|| Some(absolute("HOME")?.join(within_home)));
            base.map(|base| base.join(OUR_FOLDER))
        };
        Self {
            config: folder("XDG_CONFIG_HOME", ".config"),
            state: folder("XDG_STATE_HOME", ".local/state"),
        }
    }
}

/// All candidates for the config file in order of precedence, whether they exist or not.
pub fn candidates(working_folder: &Path, user: &UserFolders) -> Vec<FoundConfig> {
    let found = |path: &Path, name: &str, folder| FoundConfig {
        path: path.join(name),
        folder,
    };
    let folder = match user.config.as_deref() {
        Some(own) if same(working_folder, own) => ConfigFolder::User,
        _ => ConfigFolder::Working,
    };
    let here = IN_WORKING_FOLDER
        .iter()
        .map(|name| found(working_folder, name, folder));
    let own = user.config.iter().flat_map(|path| {
        IN_USER_FOLDER
            .iter()
            .map(move |name| found(path, name, ConfigFolder::User))
    });
    here.chain(own).collect()
}

/// Whether two paths are the same folder. An empty path is the working directory.
fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| {
        let path = match path.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => path.to_owned(),
        };
        run_on(&path, |path| path.canonicalize())
    };
    matches!((real(one), real(other)), (Ok(one), Ok(other)) if one == other)
}

impl Config {
    /// Finds the default config: `mcpvisor.json`, `mcpvisor.toml` or `.mcp.json` in this folder, or
    /// else `mcpvisor.json` or `mcpvisor.toml` in the user's config folder. It does not read the
    /// file; [`FoundConfig::needs_trust`] tells whether a person must trust it before its commands
    /// may run.
    pub fn find(working_folder: impl AsRef<Path>) -> Option<FoundConfig> {
        let candidates = candidates(working_folder.as_ref(), &UserFolders::of_environment());
        candidates.into_iter().find(FoundConfig::exists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::test_folder::TestFolder;

    fn folders(variables: &[(&str, &str)]) -> UserFolders {
        UserFolders::of(|wanted| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    fn first(working_folder: &Path, user: &UserFolders) -> Option<FoundConfig> {
        candidates(working_folder, user)
            .into_iter()
            .find(FoundConfig::exists)
    }

    #[test]
    fn the_folders_of_the_user_are_those_of_xdg_or_lie_in_home() {
        let home = folders(&[("HOME", "/home/ada")]);
        assert_eq!(
            home.config.unwrap(),
            Path::new("/home/ada/.config/mcpvisor")
        );
        assert_eq!(
            home.state.unwrap(),
            Path::new("/home/ada/.local/state/mcpvisor")
        );
        let xdg = folders(&[
            ("HOME", "/home/ada"),
            ("XDG_CONFIG_HOME", "/etc/ada"),
            ("XDG_STATE_HOME", "not/absolute"),
        ]);
        assert_eq!(xdg.config.unwrap(), Path::new("/etc/ada/mcpvisor"));
        assert_eq!(
            xdg.state.unwrap(),
            Path::new("/home/ada/.local/state/mcpvisor")
        );
        assert_eq!(folders(&[]), UserFolders::default());
    }

    #[test]
    fn the_working_folder_comes_before_that_of_the_user_and_needs_trust() {
        let here = TestFolder::new("found-here");
        let own = TestFolder::new("found-own");
        let user = UserFolders {
            config: Some(own.path().to_owned()),
            state: None,
        };
        assert_eq!(first(here.path(), &user), None);

        own.write("mcpvisor.toml", "");
        let found = first(here.path(), &user).unwrap();
        assert_eq!(found.path, own.path().join("mcpvisor.toml"));
        assert!(!found.needs_trust());

        for name in [".mcp.json", "mcpvisor.toml", "mcpvisor.json"] {
            here.write(name, "");
            let found = first(here.path(), &user).unwrap();
            assert_eq!(
                found.path,
                here.path().join(name),
                "{name} wins over the last"
            );
            assert!(found.needs_trust());
        }
    }

    #[test]
    fn the_config_folder_as_working_folder_needs_no_trust() {
        let own = TestFolder::new("found-both");
        let user = UserFolders {
            config: Some(own.path().to_owned()),
            state: None,
        };
        for name in ["mcpvisor.toml", "mcpvisor.json"] {
            own.write(name, "");
            let found = first(&own.path().join("."), &user).unwrap();
            assert!(!found.needs_trust(), "{name}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_a_file_is_an_error_and_not_skipped() {
        let here = TestFolder::new("found-odd");
        here.write(".mcp.json", "");
        let path = here.path().join("mcpvisor.json");
        let read = || {
            let found = first(here.path(), &UserFolders::default()).unwrap();
            assert_eq!(found.path, path);
            found.read().unwrap_err().to_string()
        };
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(read().contains("mcpvisor.json"), "{}", read());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(read().contains("not a file"), "{}", read());
        std::fs::remove_dir(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        assert!(read().contains("not a file"), "{}", read());
    }

    #[test]
    fn every_place_is_named_in_the_order_in_which_it_counts() {
        let user = folders(&[("HOME", "/home/ada")]);
        let named = candidates(Path::new("/srv"), &user);
        let named: Vec<_> = named
            .iter()
            .map(|place| place.path.to_str().unwrap())
            .collect();
        assert_eq!(
            named,
            [
                "/srv/mcpvisor.json",
                "/srv/mcpvisor.toml",
                "/srv/.mcp.json",
                "/home/ada/.config/mcpvisor/mcpvisor.json",
                "/home/ada/.config/mcpvisor/mcpvisor.toml",
            ]
        );
    }
}
