//! Collects visible texts and searches them for canaries.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Debug;

/// Part of every canary.
pub(crate) const MARK: &str = "c4n4ry";

/// Texts with their origin, and the secrets beside the canaries.
#[derive(Default)]
pub(crate) struct Evidence {
    texts: Vec<(&'static str, String)>,
    secrets: BTreeSet<String>,
}

impl Evidence {
    pub(crate) fn add(&mut self, what: &'static str, text: String) {
        self.texts.push((what, text));
    }

    /// A text that must not be shown, unless it is empty.
    pub(crate) fn note_secret(&mut self, secret: &str) {
        if !secret.is_empty() {
            self.secrets.insert(secret.to_owned());
        }
    }

    /// The number of secrets beside the canaries.
    pub(crate) fn secrets(&self) -> usize {
        self.secrets.len()
    }

    /// Adds the `Debug` output, on one line and pretty-printed.
    pub(crate) fn debug(&mut self, what: &'static str, value: &impl Debug) {
        self.add(what, format!("{value:?}\n{value:#?}"));
    }

    /// Adds the text of an error and its sources.
    pub(crate) fn error(&mut self, what: &'static str, error: &(impl Error + 'static)) {
        self.debug(what, error);
        let mut next: Option<&dyn Error> = Some(error);
        while let Some(error) = next {
            self.add(what, error.to_string());
            next = error.source();
        }
    }

    #[track_caller]
    pub(crate) fn assert_shows_nothing(&self) {
        assert!(self.texts.len() > 50, "there is evidence");
        let is_hit = |text: &str| {
            let mut secrets = self.secrets.iter();
            shows(text) || secrets.any(|secret| text.contains(secret))
        };
        let hits: Vec<_> = self.texts.iter().filter(|it| is_hit(&it.1)).collect();
        assert!(
            hits.is_empty(),
            "{} secrets are shown: {hits:#?}",
            hits.len()
        );
    }
}

/// Whether a text contains a canary, also as the byte list that a careless `Debug` prints.
pub(crate) fn shows(text: &str) -> bool {
    let numbers: Vec<String> = MARK.bytes().map(|byte| byte.to_string()).collect();
    let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    text.contains(MARK) || plain.contains(&numbers.join(","))
}
