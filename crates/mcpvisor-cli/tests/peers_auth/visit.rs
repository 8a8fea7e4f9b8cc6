//! A person who visits a page: in Chromium, or with a client that fills in forms.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::Folder;
use crate::peers::{Peers, chromium, script};
use crate::process::LONG;

/// What opens the page.
#[derive(Debug)]
pub(crate) enum Tool {
    /// Chromium, with a person who presses buttons.
    Chromium(PathBuf),
    /// Chromium that only opens the page.
    PlainChromium(PathBuf),
    /// A client that keeps cookies and submits forms.
    FormClient,
}

impl Tool {
    /// Chromium, if it is installed.
    pub(crate) fn chromium() -> Option<Self> {
        chromium().map(Self::Chromium)
    }
}

/// Fills in nothing, and presses this button or link.
pub(crate) fn press(text: &str) -> Value {
    json!({ "press": text })
}

/// Where a visit ended.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) text: String,
}

impl Page {
    #[track_caller]
    pub(crate) fn shows(&self, title: &str, text: &str) {
        assert_eq!(self.title, title, "{self:?}");
        assert!(self.text.contains(text), "{text:?} expected: {self:?}");
    }
}

/// A visit that is about to happen.
#[derive(Debug)]
pub(crate) struct Visit {
    environment: Vec<(&'static str, PathBuf)>,
    page: PathBuf,
    profile: PathBuf,
}

impl Visit {
    /// Prepares a visit. `name` is unique in the folder.
    pub(crate) fn new(
        peers: &Peers,
        folder: &Folder,
        name: &str,
        tool: &Tool,
        steps: &[Value],
    ) -> Self {
        let page = folder.path(&format!("{name}.page"));
        let profile = folder.path(&format!("{name}.profile"));
        let steps = Value::from(steps.to_vec()).to_string();
        let (browser, script_name) = match tool {
            Tool::Chromium(_) => ("browser.sh", "browser.mjs"),
            Tool::PlainChromium(_) => ("plain_chromium.sh", ""),
            Tool::FormClient => ("browser.sh", "form_client.mjs"),
        };
        let mut environment = vec![
            ("BROWSER", script(browser)),
            ("VISIT_NODE", peers.node()),
            ("VISIT_SCRIPT", script(script_name)),
            ("VISIT_PACKAGES", peers.packages()),
            ("VISIT_STEPS", steps.into()),
            ("VISIT_PAGE", page.clone()),
            ("VISIT_PROFILE", profile.clone()),
        ];
        if let Tool::Chromium(path) | Tool::PlainChromium(path) = tool {
            environment.push(("VISIT_CHROMIUM", path.clone()));
        }
        Self {
            environment,
            page,
            profile,
        }
    }

    /// Makes this visit what happens when a command opens the browser.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.envs(self.environment.iter().cloned());
    }

    /// Opens a page, as a person does who reads its address elsewhere.
    pub(crate) fn open(&self, url: &str) {
        let mut command = Command::new(&self.environment[0].1);
        self.prepare(&mut command);
        command.arg(url).stdin(Stdio::null());
        let status = command.status().unwrap();
        assert!(status.success(), "{status}");
    }

    /// Waits for the end of the visit.
    #[track_caller]
    pub(crate) fn page(&self) -> Page {
        let until = Instant::now() + LONG;
        let content = loop {
            match std::fs::read_to_string(&self.page) {
                Ok(content) => break content,
                Err(problem) => assert!(Instant::now() < until, "no page: {problem}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        // Chromium has ended, and nothing else uses it.
        let _ = std::fs::remove_dir_all(&self.profile);
        let Ok(page) = serde_json::from_str::<Value>(&content) else {
            return Page::from_html(&content);
        };
        let text = |key: &str| page[key].as_str().map(str::to_owned);
        match (text("title"), text("text")) {
            (Some(title), Some(text)) => Page { title, text },
            _ => panic!("{page}"),
        }
    }
}

impl Page {
    fn from_html(html: &str) -> Self {
        let rest = html.split_once("<title>").map(|it| it.1);
        let (title, text) = rest
            .and_then(|rest| rest.split_once("</title>"))
            .unwrap_or_else(|| panic!("no title: {html}"));
        Self {
            title: title.to_owned(),
            text: text.to_owned(),
        }
    }
}
