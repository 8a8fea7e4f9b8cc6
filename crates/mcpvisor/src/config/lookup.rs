//! Where a config is looked for when nobody names one.
//!
//! A config in the working folder may have come with a cloned repository, so its commands must not
//! run before a person said so: [`super::TrustStore`] keeps what was said.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::file::ConfigError;
use super::source::CONFIG_OPS;
use super::{Config, ConfigSource};
use crate::state::file_ops::READ_TIMEOUT;

/// Names that are looked for in the working folder, in this order.
const IN_WORKING_FOLDER: [&str; 3] = ["mcpvisor.json", "mcpvisor.toml", ".mcp.json"];

/// Names that are looked for in the user's config folder, in this order.
const IN_USER_FOLDER: [&str; 2] = ["mcpvisor.json", "mcpvisor.toml"];

/// The name of our folder within those of the user.
const OURS: &str = "mcpvisor";

/// Whose folder a config was found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The folder that someone works in: what is there may be a stranger's.
    WorkingFolder,
    /// The user's own config folder.
    UserFolder,
}

/// A place where a config may be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundConfig {
    /// The file.
    pub path: PathBuf,
    /// Whose folder it is in.
    pub place: Place,
}

impl FoundConfig {
    /// Whether its commands may run only after a person trusted it.
    pub fn needs_trust(&self) -> bool {
        match self.place {
            Place::WorkingFolder => true,
            Place::UserFolder => false,
        }
    }

    /// Whether something is there, be it a link to nowhere: what cannot be read is an error, and not
    /// passed over for another config.
    pub fn exists(&self) -> bool {
        let path = self.path.clone();
        let look = move || path.symlink_metadata();
        let looked = CONFIG_OPS.run_blocking(&self.path, READ_TIMEOUT, look);
        looked.map_or_else(|it| it.kind() == io::ErrorKind::TimedOut, |_| true)
    }

    /// Reads the file. Nothing else is waited for: whoever means a pipe names it.
    pub fn read(&self) -> Result<ConfigSource, ConfigError> {
        let failed = |source| ConfigError::Read {
            path: self.path.clone(),
            source,
        };
        let path = self.path.clone();
        let look = move || path.metadata();
        let there = CONFIG_OPS.run_blocking(&self.path, READ_TIMEOUT, look);
        let there = there.map_err(failed)?;
        if !there.is_file() {
            let problem = "it is no file; remove it, or name another config";
            return Err(failed(io::Error::other(problem)));
        }
        ConfigSource::read(&self.path)
    }
}

/// The folders of the user, after the XDG base directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserFolders {
    /// What the user wrote: `$XDG_CONFIG_HOME/mcpvisor`, or `~/.config/mcpvisor`.
    pub config: Option<PathBuf>,
    /// What is kept from run to run: `$XDG_STATE_HOME/mcpvisor`, or `~/.local/state/mcpvisor`.
    pub state: Option<PathBuf>,
}

impl UserFolders {
    /// Those that the environment of this process names.
    pub fn of_environment() -> Self {
        Self::of(|name| std::env::var_os(name))
    }

    /// Those that these variables name. A path that is not absolute is passed over, as the XDG
    /// specification asks.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let absolute = |name| {
            let path = variable(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let folder = |own, within_home| {
            let base = absolute(own).or_else(|| Some(absolute("HOME")?.join(within_home)));
            base.map(|base| base.join(OURS))
        };
        Self {
            config: folder("XDG_CONFIG_HOME", ".config"),
            state: folder("XDG_STATE_HOME", ".local/state"),
        }
    }
}

/// Every place where a config is looked for, in order, whether there is one or not.
pub fn places(working_folder: &Path, user: &UserFolders) -> Vec<FoundConfig> {
    let found = |folder: &Path, name: &str, place| FoundConfig {
        path: folder.join(name),
        place,
    };
    let place = match user.config.as_deref() {
        Some(own) if same(working_folder, own) => Place::UserFolder,
        _ => Place::WorkingFolder,
    };
    let here = IN_WORKING_FOLDER
        .iter()
        .map(|name| found(working_folder, name, place));
    let own = user.config.iter().flat_map(|folder| {
        IN_USER_FOLDER
            .iter()
            .map(move |name| found(folder, name, Place::UserFolder))
    });
    here.chain(own).collect()
}

/// Whether two paths lead to one folder. Nothing means the folder that the process runs in.
fn same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| {
        let path = match path.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => path.to_owned(),
        };
        let asked = path.clone();
        CONFIG_OPS.run_blocking(&path, READ_TIMEOUT, move || asked.canonicalize())
    };
    matches!((real(one), real(other)), (Ok(one), Ok(other)) if one == other)
}

impl Config {
    /// The config that counts when nobody names one: `mcpvisor.json`, `mcpvisor.toml` or
    /// `.mcp.json` in this folder, or else `mcpvisor.json` or `mcpvisor.toml` in the user's config
    /// folder. It is looked for, not read; [`FoundConfig::needs_trust`] says whether a person must
    /// trust it before anything that it says is run.
    pub fn find(working_folder: impl AsRef<Path>) -> Option<FoundConfig> {
        let places = places(working_folder.as_ref(), &UserFolders::of_environment());
        places.into_iter().find(FoundConfig::exists)
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
        places(working_folder, user)
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
    fn who_works_in_the_own_config_folder_needs_no_trust() {
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
    fn what_is_no_file_is_an_error_and_not_passed_over() {
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
        assert!(read().contains("no file"), "{}", read());
        std::fs::remove_dir(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        assert!(read().contains("no file"), "{}", read());
    }

    #[test]
    fn every_place_is_named_in_the_order_in_which_it_counts() {
        let user = folders(&[("HOME", "/home/ada")]);
        let named = places(Path::new("/srv"), &user);
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
